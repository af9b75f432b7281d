"""A program's parts, each a C function of its own: one as a rule.

The C compiler's time for one function grows faster than the function: gcc 12 takes
25 ms for each function of a program of 20, 35 ms of 100 and 85 ms of 200. So a large
program is cut into parts of bounded size. Parts are cut between functions, and within
one where nothing is in registers: at a continuation that only frames lead to.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from retape.engines.vlad.compiler.emit._frames import Output
from retape.engines.vlad.compiler.ir._c_text import number_table
from retape.engines.vlad.compiler.ir._ir import (
    Cont,
    Fun,
    Jump,
    Register,
    local_functions,
    terms_of,
)

PART_TERMS = 600
"""Terms of one part: some 20 short functions, or a loop nest of 300 lines."""


@dataclass(slots=True, eq=False)
class Part:
    """What becomes one C function.

    Attributes:
        out: Its text.
        functions: The numbers of the functions that begin in it.
        terms: How much of the program it has.
        codes: The codes of frames that lead into it.
    """

    out: Output
    functions: list[int] = field(default_factory=list)
    terms: int = 0
    codes: list[int] = field(default_factory=list)


def size_of(fun: Fun) -> int:
    """The terms of a function, with those of a fix in it."""
    bodies = [fun.body, *(local.body for local in local_functions(fun.body))]
    return sum(1 for body in bodies for _ in terms_of(body))


def is_closed(cont: Cont) -> bool:
    """Tell whether no jump in a continuation leads out of it."""
    bound = {each.name for each in terms_of(cont.cont) if isinstance(each, Cont)}
    return all(
        each.cont in bound for each in terms_of(cont.cont) if isinstance(each, Jump)
    )


def assemble(
    parts: Sequence[Part],
    doors: dict[int, list[Register]],
    static: Iterable[str],
) -> list[str]:
    """The C of a program's boxed form.

    Args:
        parts: Its parts.
        doors: What functions need that another part calls.
        static: Its constants.
    """
    most = max(part.out.most_passed for part in parts)
    words = max(part.out.max_words for part in parts)
    codes = {code: i for i, part in enumerate(parts) for code in part.codes}
    functions = {index: i for i, part in enumerate(parts) for index in part.functions}
    return [
        '#include "parts.h"',
        "",
        *static,
        "",
        f"static __attribute__((unused)) Val passed[{max(1, most)}];",
        *(line for n, part in enumerate(parts) for line in _part(n, part, doors)),
        "const Part parts[] = {",
        *(f"  part_{n}," for n in range(len(parts))),
        "};",
        *number_table("part_of_code", codes),
        *number_table("part_of_function", functions),
        "",
        f"const size_t max_block_words = {words};",
        "",
    ]


def _part(number: int, part: Part, doors: dict[int, list[Register]]) -> Iterator[str]:
    yield f"static int part_{number}(int next) {{"
    yield "  PART_VARIABLES"
    out = part.out
    inward: list[str] = []
    for index in part.functions:
        if index in doors:
            inward.append(f"  case TO_FUNCTION + {index}:")
            for i, name in enumerate(doors[index]):
                inward.append(f"    {out.register(name)} = passed[{i}];")
            inward.append(f"    goto F{index};")
    yield from (f"  Val {name};" for name in sorted(out.registers))
    yield from ("  switch (next) {", "  case TO_RESUME: goto RESUME;")
    yield from ("  case TO_ENTER: goto ENTER;", *inward)
    yield from ("  default: __builtin_unreachable();", "  }")
    yield from ("RESUME:", "  switch (code_of(object(k))) {", *out.cases)
    yield from ("  default: next = TO_RESUME; goto LEAVE;", "  }", "ENTER:")
    yield "  if (UNLIKELY(tag_of(s0) != TAG_CLOSURE)) { next = TO_ENTER; goto LEAVE; }"
    yield from ("  switch (code_of(object(s0))) {", *out.entries)
    yield from ("  default: next = TO_ENTER; goto LEAVE;", "  }", *out.lines)
    yield from ("  PART_END", "}")

"""The C around a program: one function, its ways in, and what all blocks share.

A large program is several functions, each called by `run_slice` for what it has.
"""

from collections.abc import Iterable, Iterator, Sequence

from retape.engines.vlad.compiler.emit._output import Output
from retape.engines.vlad.compiler.emit._parts import Part
from retape.engines.vlad.compiler.ir._files import NEXT_FILE


def assemble(out: Output, static: Iterable[str], typed: Iterable[str]) -> str:
    """The whole C file; `typed` is what follows the program's own code."""
    return "\n".join(
        [
            '#include "code.h"',
            "",
            *static,
            "",
            "int run_slice(Val frame, int64_t fuel) {",
            "  Val *hp = G.hp, *limit = G.limit;",
            "  Val k = frame, ret = NOTHING, s0, s1, s2, unused;",
            "  int64_t need;",
            "  int32_t site;",
            "  enum Operator op;",
            "  (void)s2, (void)unused;",
            *(f"  Val {name};" for name in sorted(out.registers)),
            *_RESUME,
            *out.cases,
            "  default: __builtin_unreachable();",
            "  }",
            *_ENTER,
            *out.entries,
            "  default: __builtin_unreachable();",
            "  }",
            *out.lines,
            *_TAIL,
            "}",
            "",
            f"const size_t max_block_words = {out.max_words};",
            "",
            *typed,
            "",
        ]
    )


def assemble_parts(
    parts: Sequence[Part],
    doors: dict[int, list[str]],
    static: Iterable[str],
    typed: Iterable[str],
) -> str:
    """The C file of a program in parts, without those that are compiled later.

    Args:
        parts: Its parts.
        doors: What functions need that another part calls.
        static: Its constants.
        typed: What follows the program's own code.
    """
    most = max(part.out.most_passed for part in parts)
    lines = [
        '#include "parts.h"',
        "",
        *static,
        "",
        f"static __attribute__((unused)) Val passed[{max(1, most)}];",
        *_parts_text(parts, doors, is_seldom=False),
    ]
    has_later = any(part.is_seldom for part in parts)
    lines += ['#include "later.h"'] if has_later else ["#define PART(at) parts[at]"]
    codes = {code: i for i, part in enumerate(parts) for code in part.codes}
    functions = {index: i for i, part in enumerate(parts) for index in part.functions}
    lines += [
        *_part_numbers("part_of_code", codes),
        *_part_numbers("part_of_function", functions),
    ]
    lines += [*_AROUND, *_RESUME, *_ELSEWHERE[0], *_ENTER, *_ELSEWHERE[1], *_TAIL, "}"]
    words = max(part.out.max_words for part in parts)
    lines += [
        "",
        f"const size_t max_block_words = {words};",
        "",
        NEXT_FILE,
        *typed,
        "",
    ]
    return "\n".join(lines)


def assemble_later(parts: Sequence[Part], doors: dict[int, list[str]]) -> str:
    """The C file of the parts that are compiled when a run first comes to one."""
    return "\n".join(
        ['#include "apart.h"', *_parts_text(parts, doors, is_seldom=True), ""]
    )


def _parts_text(
    parts: Sequence[Part], doors: dict[int, list[str]], *, is_seldom: bool
) -> Iterator[str]:
    """The functions of some parts, and a table of them with room for the others."""
    here = [part.is_seldom == is_seldom for part in parts]
    for number, part in enumerate(parts):
        if here[number]:
            yield from _part(number, part, doors)
    yield f"{'const Part' if is_seldom else 'static const Part'} parts[] = {{"
    yield from (f"  part_{n}," if here[n] else "  NULL," for n in range(len(parts)))
    yield "};"


def _part(number: int, part: Part, doors: dict[int, list[str]]) -> Iterator[str]:
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


def _part_numbers(name: str, numbers: dict[int, int]) -> Iterator[str]:
    """A table of numbers, zero where there is none."""
    yield f"static const uint16_t {name}[{max(numbers, default=0) + 1}] = {{"
    yield from (f"  [{key}] = {value}," for key, value in sorted(numbers.items()))
    yield "};"


_AROUND = [
    "int run_slice(Val frame, int64_t fuel) {",
    "  Val *hp = G.hp;",
    "  Val k = frame, ret = NOTHING, s0 = NOTHING, s1 = NOTHING, s2 = NOTHING;",
    "  int64_t need;",
    "  int32_t site;",
    "  enum Operator op;",
    "  int next;",
    "  uint32_t at;",
]

_ELSEWHERE = (
    [
        "  default:",
        "    next = TO_RESUME;",
        "    at = part_of_code[code_of(object(k))];",
        "  }",
        "GO:",
        "  TO_PART(PART(at))",
        "  switch (next) {",
        "  case TO_RESUME: goto RESUME;",
        "  case TO_ENTER: goto ENTER;",
        "  case TO_OPERATE: goto OPERATE;",
        "  case TO_PAUSE_RETURN: goto PAUSE_RETURN;",
        "  case TO_PAUSE: goto PAUSE;",
        "  default:",
        "    at = part_of_function[next - TO_FUNCTION];",
        "    goto GO;",
        "  }",
    ],
    [
        "  default:",
        "    next = TO_ENTER;",
        "    at = part_of_function[code_of(object(s0))];",
        "    goto GO;",
        "  }",
    ],
)

_RESUME = [
    "RESUME:",
    "  switch (code_of(object(k))) {",
    "  case HALT:",
    "    G.hp = hp;",
    "    G.fuel = fuel;",
    "    G.result = ret;",
    "    G.k = NOTHING;",
    "    return 0;",
    "  case RETURN:",
    "    ret = object(k)->field[1];",
    "    k = object(k)->field[0];",
    "    goto RESUME;",
    "  case APPLY:",
    "    s1 = object(k)->field[1];",
    "    s0 = object(k)->field[2];",
    "    k = object(k)->field[0];",
    "    goto ENTER;",
]

_ENTER = [
    "ENTER:",
    "  if (UNLIKELY(tag_of(s0) != TAG_CLOSURE)) {",
    "    G.k = k;",
    '    fail(NOT_FUNCTION, "", G.site, s0, NOTHING);',
    "  }",
    "  switch (code_of(object(s0))) {",
]

_TAIL = [
    "OPERATE: __attribute__((unused));",
    "  G.hp = hp;",
    "  ret = apply_operator(op, s0, s1, s2, &k, site);",
    "  hp = G.hp;",
    "  goto RESUME;",
    "PAUSE_RETURN: __attribute__((unused)); {",
    "    G.hp = hp;",
    "    Object *o = small_object(RETURN, 2);",
    "    o->field[0] = k;",
    "    o->field[1] = ret;",
    "    k = tagged(TAG_FRAME, o);",
    "    hp = G.hp;",
    "  }",
    "PAUSE:",
    "  G.hp = hp;",
    "  G.k = k;",
    "  if (fuel < need) {",
    "    G.fuel = fuel;",
    "    return 1;",
    "  }",
    "  collect();",
    "  k = G.k;",
    "  hp = G.hp;",
    "  goto RESUME;",
]

"""The C around a program: its parts, and what calls each for what it has."""

from collections.abc import Iterable, Iterator, Sequence

from retape.engines.vlad.compiler.emit._parts import Part


def assemble(
    parts: Sequence[Part],
    doors: dict[int, list[str]],
    static: Iterable[str],
    typed: Iterable[str],
) -> str:
    """The C files of a program.

    Args:
        parts: Its parts.
        doors: What functions need that another part calls.
        static: Its constants.
        typed: What follows the program's own code.
    """
    most = max(part.out.most_passed for part in parts)
    words = max(part.out.max_words for part in parts)
    codes = {code: i for i, part in enumerate(parts) for code in part.codes}
    functions = {index: i for i, part in enumerate(parts) for index in part.functions}
    lines = [
        '#include "parts.h"',
        "",
        *static,
        "",
        f"static __attribute__((unused)) Val passed[{max(1, most)}];",
        *(line for n, part in enumerate(parts) for line in _part(n, part, doors)),
        "static const Part parts[] = {",
        *(f"  part_{n}," for n in range(len(parts))),
        "};",
        *_part_numbers("part_of_code", codes),
        *_part_numbers("part_of_function", functions),
        '#include "run_parts.h"',
        "",
        f"const size_t max_block_words = {words};",
        "",
        *typed,
        "",
    ]
    return "\n".join(lines)


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

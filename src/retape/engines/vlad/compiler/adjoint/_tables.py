"""The tables by which the runtime reads states: types of frames, as text."""

from collections.abc import Iterator

from retape.engines.vlad.compiler.ir._operator_text import real_text
from retape.engines.vlad.compiler.typed._form import (
    Register,
    Shape,
    Tuple,
    TypedProgram,
    letter_of,
)


def tables(
    program: TypedProgram,
    useful: frozenset[Register],
    whole: frozenset[Register],
    frames: int,
    functions: int,
    largest: float,
) -> Iterator[str]:
    """The tables: of frames, of values that frames wait for, and two of closures."""

    def _types(shapes: tuple[Shape, ...]) -> str:
        return "".join(_type(shape, useful, whole) for shape in shapes)

    types: dict[int, str] = {}
    results: dict[int, str] = {}
    entries: dict[int, str] = {}
    for function in program.functions.values():
        types[function.resume.code] = _types(function.resume.shapes)
        if function.enter is not None:
            entries[function.enter.code] = _types(function.enter.shapes)
    for code, join in program.returns.items():
        assert join.frame is not None
        types[code] = _types(join.frame.shapes)
        results[code] = _types((join.params,))
    yield "const int is_typed = 1;"
    yield f"const double typed_largest = {real_text(largest)};"
    yield from _table("typed_frames", types, frames)
    yield from _table("typed_results", results, frames)
    yield from _table("typed_entries", entries, functions)
    yield from _gives_real(program)


def _gives_real(program: TypedProgram) -> Iterator[str]:
    """The closures whose functions give a real."""
    numbers = [
        function.enter.code
        for function in program.functions.values()
        if function.enter is not None
        and isinstance(function.result, Register)
        and function.result.kind == "d"
    ]
    size = max(numbers, default=0) + 1
    yield f"const uint32_t typed_real_size = {size};"
    yield f"const char typed_real[{size}] = {{"
    yield from (f"  [{number}] = 1," for number in numbers)
    yield "};" if numbers else "  0};"


def _table(name: str, texts: dict[int, str], size: int) -> Iterator[str]:
    yield f"const char *const {name}[{max(1, size)}] = {{"
    for number in sorted(texts):
        yield f'  [{number}] = "{texts[number]}",'
    yield "};" if texts else "  0};"


def _type(shape: Shape, useful: frozenset[Register], whole: frozenset[Register]) -> str:
    if isinstance(shape, Tuple):
        parts = (_type(part, useful, whole) for part in (shape.car, shape.cdr))
        return "p" + "".join(parts)
    if isinstance(shape, tuple):
        return "u"
    kind = letter_of(shape)
    if kind != "d" or not isinstance(shape, Register):
        return "i" if kind == "d" else kind
    if shape in whole:
        return "W" if shape in useful else "w"
    return "d" if shape in useful else "i"

"""The tables by which the runtime reads states: types of frames, as text."""

from collections.abc import Callable, Iterator

from retape.engines.vlad.compiler.ir._ir import FIRST_CODE, Register, letter_of
from retape.engines.vlad.compiler.typed._form import Shape, Tuple, TypedProgram


def tables(
    program: TypedProgram,
    useful: frozenset[Register],
    whole: frozenset[Register],
    functions: int,
) -> Iterator[str]:
    """The tables: of frames, of values that frames wait for, and two of closures."""

    def _types(shapes: tuple[Shape, ...]) -> str:
        return "".join(_type(shape, letter) for shape in shapes)

    def letter(slot: Register) -> str:
        if slot in whole:
            return "W" if slot in useful else "w"
        return "d" if slot in useful else "i"

    types: dict[int, str] = {}
    results: dict[int, str] = {}
    entries: dict[int, str] = {}
    for function in program.functions.values():
        types[function.resume.code] = _types(function.resume.shapes)
        if function.enter is not None:
            entries[function.enter.code] = _types(function.enter.shapes)
    for code, join in program.returns.items():
        types[code] = _types(program.pushed(join.name).shapes)
        results[code] = _types((program.conts[join.name].shape,))
    yield "const int is_typed = 1;"
    frames = FIRST_CODE + program.codes
    yield from _table("typed_frames", types, frames)
    yield from _table("typed_results", results, frames)
    yield from _table("typed_entries", entries, functions)
    values = {number: text for text, number in given_types(program).items()}
    yield from _table("typed_values", values, len(values) + 1)


def given_types(program: TypedProgram) -> dict[str, int]:
    """The types of what functions give, and their numbers, from 1."""
    texts = (type_of_value(f.result) for f in program.functions.values())
    return {text: i for i, text in enumerate(dict.fromkeys(texts), start=1)}


def given_shapes(program: TypedProgram) -> Iterator[tuple[int, Shape]]:
    """A shape of each of these types, with its number."""
    shapes = {type_of_value(f.result): f.result for f in program.functions.values()}
    for text, number in given_types(program).items():
        yield number, shapes[text]


def type_of_value(shape: Shape) -> str:
    """The type of a value as text, in which each double is a real."""
    return _type(shape, lambda _: "d")


def _table(name: str, texts: dict[int, str], size: int) -> Iterator[str]:
    yield f"const char *const {name}[{max(1, size)}] = {{"
    for number in sorted(texts):
        yield f'  [{number}] = "{texts[number]}",'
    yield "};" if texts else "  0};"


def _type(shape: Shape, letter: Callable[[Register], str]) -> str:
    """A type as text; a function tells the letter of each double."""
    if isinstance(shape, Tuple):
        return "p" + _type(shape.car, letter) + _type(shape.cdr, letter)
    if isinstance(shape, tuple):
        return "u"
    kind = letter_of(shape)
    if kind != "d" or not isinstance(shape, Register):
        return "i" if kind == "d" else kind
    return letter(shape)

"""Pass: typed functions and their reverse as C, to stand behind the program's own."""

from collections.abc import Iterator

from retape.engines.vlad.compiler.adjoint._emit_parts import parts_text
from retape.engines.vlad.compiler.adjoint._names import TapeNames, words_in
from retape.engines.vlad.compiler.adjoint._tables import tables
from retape.engines.vlad.compiler.ir._c_text import NEXT_FILE
from retape.engines.vlad.compiler.ir._ir import Call, Lowered, all_functions, terms_of
from retape.engines.vlad.compiler.typed._form import TypedProgram
from retape.engines.vlad.compiler.typed._lower_typed import TypedLowering
from retape.engines.vlad.compiler.typed._recorded import Recorded, recorded
from retape.engines.vlad.compiler.typed._useful import useful_slots
from retape.engines.vlad.compiler.typed._ways import TooManyWays, find_ways
from retape.engines.vlad.compiler.typed._whole import whole_slots

NOTHING_TYPED = ('#include "untyped.h"',)

_MOST_WORDS = 500
"""Words of a frame, or of a way on the tape: the runtime makes room for so many."""


def _fits(program: TypedProgram, tape: dict[int, Recorded]) -> bool:
    frames = [f.resume for f in program.functions.values()]
    frames += [f.enter for f in program.functions.values() if f.enter is not None]
    frames += [program.pushed(join.name) for join in program.returns.values()]
    return all(words_in(frame.words) < _MOST_WORDS for frame in frames) and all(
        len(each.kept) + len(each.fixed) < _MOST_WORDS for each in tape.values()
    )


def _called_from_outside(module: Lowered, program: TypedProgram) -> set[int]:
    """The functions that untyped ones call."""
    return {
        term.function
        for fun in all_functions(module)
        if fun.index not in program.functions
        for term in terms_of(fun.body)
        if isinstance(term, Call)
    }


def typed_text(
    lowering: TypedLowering,
    frames: int,
    *,
    reverse: bool = True,
) -> Iterator[str]:
    """The lines of C, or one that says that there is no typed code.

    Args:
        lowering: The program, about to be converted.
        frames: How many codes there are.
        reverse: Whether a derivative may be taken; if not, there is none.
    """
    module, program = lowering.module, lowering.lower().checked()
    if not program.functions:
        yield from NOTHING_TYPED
        return
    useful = useful_slots(program)
    try:
        ways = find_ways(program, useful)
    except TooManyWays:
        yield from NOTHING_TYPED
        return
    tape = {end: recorded(way, useful) for end, way in ways.ways.items()}
    outside = _called_from_outside(module, program)
    names = TapeNames(whole_slots(program, outside), as_integers=not reverse)
    if not _fits(program, tape):
        yield from NOTHING_TYPED
        return
    functions = max((fun.index for fun in all_functions(module)), default=0) + 1
    yield from (NEXT_FILE, '#include "typed.h"')
    yield from tables(program, useful, names.whole, frames, functions)
    yield from parts_text(program, ways, tape, names, useful, taped=reverse)

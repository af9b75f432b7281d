"""Typed code as C functions of bounded size, and what calls them: one as a rule.

The C compiler's time for one function grows faster than the function (gcc 12: 2 s for
the C of 80 ways, 34 s for 300), so each part has some functions, and its reverse some
ways. A variable that several parts mention is static; all others are registers of their
part.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from retape.engines.vlad.compiler.adjoint._emit_record import RecordEmission
from retape.engines.vlad.compiler.adjoint._emit_reverse import (
    PIECE_CASE,
    ReverseEmission,
)
from retape.engines.vlad.compiler.adjoint._names import TapeNames, words_in
from retape.engines.vlad.compiler.adjoint._tables import tables
from retape.engines.vlad.compiler.ir._c_text import (
    NEXT_FILE,
    grouped,
    number_table,
)
from retape.engines.vlad.compiler.ir._ir import (
    Cont,
    Register,
    all_functions,
    terms_of,
)
from retape.engines.vlad.compiler.typed._form import TypedFunction, TypedProgram
from retape.engines.vlad.compiler.typed._lower_typed import TypedLowering
from retape.engines.vlad.compiler.typed._recorded import Recorded, recorded
from retape.engines.vlad.compiler.typed._useful import useful_slots
from retape.engines.vlad.compiler.typed._ways import TooManyWays, Way, Ways, find_ways
from retape.engines.vlad.compiler.typed._whole import whole_slots
from retape.engines.vlad.operators._table import EQUAL, MULTIPLY

PART_WAYS = 60
"""Ways of one part, unless one function has more."""

HALT = 0
"""The code of the last frame, of any part: see `runtime/program.h`."""

_NO_REVERSE = "void typed_reverse(void) {}"

_OF_ANY_PART, _OF_FIRST_PART = 1, 2
"""Numbers on the tape that are the runtime's: see `runtime/typed.h`."""


@dataclass(frozen=True, slots=True)
class _PartText:
    """The lines of one C function, and the variables that it mentions."""

    cases: Sequence[str]
    body: Sequence[str]

    @property
    def words(self) -> frozenset[str]:
        text = "\n".join([*self.cases, *self.body])
        return frozenset(re.findall(r"\b[a-z]\w*\b", text))


def parts_text(
    program: TypedProgram,
    ways: Ways,
    tape: dict[int, Recorded],
    names: TapeNames,
    useful: frozenset[Register],
    *,
    taped: bool,
) -> Iterator[str]:
    """The lines of `typed_record` and `typed_reverse`, and of their parts."""
    parts = [*_parts(program, ways)]
    lines = [*_record(program, ways, tape, names, parts, taped=taped)]
    yield from ('#include "typed_parts.h"', *names.each.forward_text(), *lines)
    if not taped:
        yield _NO_REVERSE
        return
    reverse = ReverseEmission(program, ways, tape, names, useful)
    lines = [*_reverse(reverse, parts)]
    if len(parts) > 1:
        yield from (NEXT_FILE, '#include "typed_parts.h"')
    yield from (*names.each.backward_text(), *lines)


def _ways_of(function: TypedFunction, ways: Ways) -> list[Way]:
    ends = (ways.ways.get(id(term)) for term in terms_of(function.body))
    return [way for way in ends if way is not None]


def _parts(program: TypedProgram, ways: Ways) -> Iterator[TypedProgram]:
    """The functions, those together that are beside one another."""

    def size(function: TypedFunction) -> int:
        return 1 + len(_ways_of(function, ways))

    for functions in grouped(program.functions.values(), size, PART_WAYS):
        part = TypedProgram({function.index: function for function in functions})
        for term in (t for function in functions for t in terms_of(function.body)):
            frame = program.conts[term.name].frame if isinstance(term, Cont) else None
            if frame is not None:
                part.returns[frame.code] = program.returns[frame.code]
        yield part


def _shared(texts: Sequence[_PartText]) -> frozenset[str]:
    counts = Counter(word for text in texts for word in text.words)
    return frozenset(word for word, count in counts.items() if count > 1)


def _record(
    program: TypedProgram,
    ways: Ways,
    tape: dict[int, Recorded],
    names: TapeNames,
    parts: Sequence[TypedProgram],
    *,
    taped: bool,
) -> Iterator[str]:
    made: list[tuple[RecordEmission, _PartText]] = []
    for part in parts:
        emission = RecordEmission(program, ways, tape, names, part, taped=taped)
        body = emission.blocks()
        emission.halt()
        emission.entries()
        made.append((emission, _PartText(emission.lines, body)))
    shared = _shared([text for _, text in made])
    variables = dict.fromkeys(line for each, _ in made for line in each.variables())
    yield from _declared(variables, shared, static=True)
    for number, (emission, text) in enumerate(made):
        yield f"static int record_part_{number}(int next) {{"
        yield "  Word *sp = T.at, *tp = T.tape, *top = T.top;"
        yield "  int64_t fuel = T.fuel;"
        yield from emission.room()
        yield from _declared(emission.variables(), shared, static=False)
        yield from emission.remembered_declared()
        yield "  switch (next) {"
        for index in emission.part.functions:
            yield f"  case DO_CALL + {index}: goto F{index};"
        yield from (
            "  default: break;",
            "  }",
            "POP: __attribute__((unused));",
            *(["  ROOM"] if taped else []),
        )
        yield from ("  switch (sp[-1].u) {", *text.cases)
        yield from ("  default: next = DO_POP; goto LEAVE;", "  }", *text.body)
        yield from ("  RECORD_PART_END", "}")
    codes = {HALT: 0, **{c: i for i, part in enumerate(parts) for c in _codes(part)}}
    entries = {c: i for i, part in enumerate(parts) for c in _entries(part)}
    functions = {c: i for i, part in enumerate(parts) for c in part.functions}
    yield from _functions("int", "record", "int", len(parts))
    yield from number_table("record_part_of_code", codes)
    yield from number_table("record_part_of_entry", entries)
    yield from number_table("record_part_of_function", functions)


def _codes(part: TypedProgram) -> Iterator[int]:
    yield from part.returns
    yield from (function.resume.code for function in part.functions.values())


def _entries(part: TypedProgram) -> Iterator[int]:
    frames = (function.enter for function in part.functions.values())
    yield from (frame.code for frame in frames if frame is not None)


def _reverse(emission: ReverseEmission, parts: Sequence[TypedProgram]) -> Iterator[str]:
    texts = [_PartText(lines, ()) for lines in _reverse_lines(emission, parts)]
    shared = _shared(texts)
    places, names = emission.places, emission.names
    adjoints = [names.adjoint(slot) for slot in places.crossing]
    adjoints += places.returned
    static = [name for name in adjoints if name in shared]
    yield from (f"static double {name};" for name in static)
    for number, text in enumerate(texts):
        yield f"static uint64_t reverse_part_{number}(uint64_t next) {{"
        yield "  const Word *tp = T.reversed;"
        yield "  double *ap = T.adjoint_at;"
        mentioned = text.words
        for name in adjoints:
            if name in mentioned and name not in shared:
                yield f"  double {name} = 0.0; (void){name};"
        yield from (
            "  goto DISPATCH;",
            "NEXT: __attribute__((unused));",
            "  next = (--tp)->u;",
            "DISPATCH:",
        )
        yield from ("  switch (next) {", *PIECE_CASE, *text.cases)
        yield from (
            "  default: T.reversed = tp; T.adjoint_at = ap; return next;",
            "  }",
        )
        yield "}"
    numbers: dict[int, int] = {_OF_ANY_PART: 0, _OF_FIRST_PART: 0}
    for number, text in enumerate(texts):
        for found in re.findall(r"case (\d+):", "\n".join(text.cases)):
            numbers[int(found)] = number
    yield from _functions("uint64_t", "reverse", "uint64_t", len(texts))
    yield from number_table("reverse_part_of", numbers)
    yield "void typed_reverse(void) {"
    yield from (f"  {name} = 0.0;" for name in static)
    yield from ("  REVERSE_BY_PARTS", "}")


def _reverse_lines(
    emission: ReverseEmission, parts: Sequence[TypedProgram]
) -> Iterator[list[str]]:
    """The cases of each part: those of some functions, or of some ways."""
    emission.seeded()
    for part in parts:
        for function in part.functions.values():
            emission.entries_of(function)
        for code, join in part.returns.items():
            emission.return_to(code, join)
        count = 0
        for function in part.functions.values():
            for way in _ways_of(function, emission.ways):
                if count == 2 * PART_WAYS:
                    yield emission.taken()
                    count = 0
                emission.way(way)
                count += 1
        yield emission.taken()


def _declared(
    lines: Iterable[str], shared: frozenset[str], *, static: bool
) -> Iterator[str]:
    """The declarations of shared variables, which are static, or those of others."""
    for line in lines:
        declared = line.split(EQUAL)[0].split()[-1].lstrip(MULTIPLY)
        if (declared in shared) == static:
            yield f"static {line.split(';')[0].strip()};" if static else line


def _functions(result: str, name: str, given: str, count: int) -> Iterator[str]:
    yield f"{result} (*const {name}_parts[])({given}) = {{"
    yield from (f"  {name}_part_{number}," for number in range(count))
    yield "};"


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


def typed_text(lowering: TypedLowering, *, reverse: bool = True) -> Iterator[str]:
    """The lines of C, or one that says that there is no typed code.

    Args:
        lowering: The program, about to be converted.
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
    names = TapeNames(whole_slots(program), as_integers=not reverse)
    if not _fits(program, tape):
        yield from NOTHING_TYPED
        return
    functions = max((fun.index for fun in all_functions(module)), default=0) + 1
    yield '#include "typed.h"'
    yield from tables(program, useful, names.whole, functions)
    yield from parts_text(program, ways, tape, names, useful, taped=reverse)

"""Pass: the ways of typed code to the C that propagates adjoints backwards.

The number on the top of the tape says which way the run came; its case takes what the
way has recorded, propagates the adjoints of what the way left to what it began with,
and looks at the next number. An adjoint that outlives a block is a variable of C for
the whole function; it is zero where its variable is not in use. On the stack, adjoints
stand at the places of the values.
"""

from retape.engines.vlad.compiler.adjoint._emit_way import WayReverse
from retape.engines.vlad.compiler.adjoint._names import (
    ENTER_BY,
    RETURN_TO,
    AdjointPlaces,
    TapeNames,
    words_in,
)
from retape.engines.vlad.compiler.adjoint._tables import given_shapes
from retape.engines.vlad.compiler.ir._ir import Atom, Cont, Register, letter_of
from retape.engines.vlad.compiler.typed._form import (
    TypedFunction,
    TypedProgram,
    parts_of,
)
from retape.engines.vlad.compiler.typed._recorded import Recorded
from retape.engines.vlad.compiler.typed._ways import Way, Ways

PIECE_CASE = (
    "  case TAPE_PIECE:",
    "    T.piece = T.piece->before;",
    "    tp = T.piece->filled;",
    "    goto NEXT;",
)


class ReverseEmission:
    """The text of `typed_reverse`, after that of `typed_record` has been made."""

    def __init__(
        self,
        program: TypedProgram,
        ways: Ways,
        tape: dict[int, Recorded],
        names: TapeNames,
        useful: frozenset[Register],
    ) -> None:
        self.program, self.ways, self.tape, self.names = program, ways, tape, names
        self.places = AdjointPlaces(program, ways, names, useful)
        self.lines: list[str] = []

    def taken(self) -> list[str]:
        """The lines that have been written."""
        lines, self.lines = self.lines, []
        return lines

    def _line(self, text: str) -> None:
        self.lines.append("  " + text)

    def seeded(self) -> None:
        """The case of a run's end, with which the reverse of its last stage begins."""
        self._line("case TAPE_END:")
        self._line("switch (T.gives) {")
        for number, shape in given_shapes(self.program):
            self._line(f"case {number}:")
            for at, name in self.places.returned_parts(tuple(parts_of(shape))):
                self._line(f"  {name} = ap[{at}];")
            self._line("  break;")
        self._line("}")
        self._line("goto NEXT;")

    def way(self, way: Way) -> None:
        """The case of a way."""
        number = self.names.number(("way", way.number))
        label = "" if way.loop else f" W{number}:"
        self._line(f"case {number}:{label} {{")
        tape = self.tape[id(way.end)]
        reverse = WayReverse(self.program, self.ways, self.places, way, tape)
        if way.loop is not None:
            self._line("uint64_t run = (--tp)->u;")
            self.lines += [*reverse.before(), "    do {", *reverse.text()]
            self._line("} while (--run); }")
            self._line("goto NEXT;")
            return
        self.lines += reverse.text()
        if way.block is not None and self.ways.returned_to(way.block):
            self._taken_back(way.block)
        self._line("}")
        self._line("next = (--tp)->u;")
        self._line(f"if (LIKELY(next == {number})) goto W{number};")
        self._line("goto DISPATCH;")

    def entries_of(self, function: TypedFunction) -> None:
        """What was popped is pushed, and what was pushed is popped: a function's."""
        code = function.resume.code
        words = function.resume.words
        self._popped(code, words)
        self._line(f"case {self.names.number(('stop', code))}:")
        self._line(f"ap -= {words_in(words) + 1};")
        for at, slot in self.places.on_stack(words):
            self._line(f"{self.names.adjoint(slot)} += ap[{at}];")
        self._line("goto NEXT;")
        if function.enter is not None:
            self._popped(ENTER_BY | function.enter.code, function.enter.words)

    def return_to(self, code: int, join: Cont) -> None:
        """The same of a join that a call returns to."""
        params, words = join.params, self.program.pushed(join.name).words
        if not self.ways.returned_to(join):
            self._popped(code, words, params)
        waiting = RETURN_TO | code
        self._line(f"case {self.names.number(('stop', waiting))}:")
        self._line(f"ap -= {words_in(params) + 1};")
        for at, name in self.places.returned_parts(params):
            self._line(f"{name} = ap[{at}];")
        self._line("goto NEXT;")
        self._line(f"case {self.names.number(('pop', waiting))}:")
        for at, name in self.places.returned_parts(params):
            self._line(f"ap[{at}] = {name};")
        self._line(f"ap += {words_in(params) + 1};")
        self._line("goto NEXT;")

    def _popped(
        self,
        code: int,
        words: tuple[Atom, ...],
        params: tuple[Atom, ...] = (),
    ) -> None:
        self._line(f"case {self.names.number(('pop', code))}:")
        self._pushed_again(words, params)
        self._line("goto NEXT;")

    def _taken_back(self, join: Cont) -> None:
        """The return to a join, after the reverse of one of its ways."""
        words = self.program.pushed(join.name).words
        self._pushed_again(words, join.params)

    def _pushed_again(self, words: tuple[Atom, ...], params: tuple[Atom, ...]) -> None:
        for at, slot in self.places.on_stack(words):
            name = self.names.adjoint(slot)
            self._line(f"ap[{at}] = {name}; {name} = 0.0;")
        self._line(f"ap += {words_in(words) + 1};")
        for (_, name), param in zip(
            self.places.returned_parts(params),
            (p for p in params if letter_of(p) == "d"),
            strict=True,
        ):
            if param in self.places.crossing:
                assert isinstance(param, Register)
                own = self.names.adjoint(param)
                self._line(f"{name} = {own}; {own} = 0.0;")
            else:
                self._line(f"{name} = 0.0;")

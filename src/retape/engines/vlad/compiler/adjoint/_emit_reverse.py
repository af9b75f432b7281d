"""Pass: the ways of typed code to the C that propagates adjoints backwards.

The number on the top of the tape says which way the run came; its case takes what the
way has recorded, propagates the adjoints of what the way left to what it began with,
and looks at the next number. An adjoint that outlives a block is a variable of C for
the whole function; it is zero where its variable is not in use. On the stack, adjoints
stand at the places of the values.
"""

from collections.abc import Iterator

from retape.engines.vlad.compiler.adjoint._names import (
    ENTER_BY,
    RETURN_TO,
    TapeNames,
    words_in,
)
from retape.engines.vlad.compiler.typed._derivatives import CHEAP, LEFT, RIGHT
from retape.engines.vlad.compiler.typed._form import (
    Do,
    Give,
    Go,
    Invoke,
    Register,
    TypedAtom,
    TypedProgram,
    letter_of,
    parts_of,
)
from retape.engines.vlad.compiler.typed._recorded import Recorded
from retape.engines.vlad.compiler.typed._ways import Passed, Way, Ways


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
        self.useful = useful
        self.crossing: dict[Register, None] = {}
        self.returned: dict[str, None] = {"q0": None}
        self.lines: list[str] = []

    def text(self) -> Iterator[str]:
        """The lines of the function."""
        self._find_crossing()
        for way in self.ways.ways.values():
            self._way(way)
        self._entries()
        yield "static void typed_reverse(double seed) {"
        yield "  const Word *tp = T.tape;"
        yield "  double *ap = T.adjoint + (T.at - T.stack);"
        yield "  uint64_t next;"
        for slot in self.crossing:
            name = self.names.adjoint(slot)
            yield f"  double {name} = 0.0; (void){name};"
        for name in self.returned:
            yield f"  double {name} = 0.0; (void){name};"
        yield "  (void)ap;"
        yield "  q0 = seed;"
        yield "NEXT:"
        yield "  next = (--tp)->u;"
        yield "DISPATCH:"
        yield "  switch (next) {"
        yield "  case TAPE_BEGIN: return;"
        yield "  case TAPE_PIECE:"
        yield "    T.piece = T.piece->before;"
        yield "    tp = T.piece->filled;"
        yield "    goto NEXT;"
        yield from self.lines
        yield "  default: __builtin_unreachable();"
        yield "  }"
        yield "}"

    def _find_crossing(self) -> None:
        atoms: list[TypedAtom] = []
        for function in self.program.functions.values():
            atoms += [*function.params, *function.live]
            if function.enter is not None:
                atoms += function.enter.words
        for join in (*self.ways.blocks.values(), *self.program.returns.values()):
            atoms += [*parts_of(join.params), *join.live]
        self.crossing = dict.fromkeys(
            a for a in atoms if isinstance(a, Register) and a in self.useful
        )

    def _line(self, text: str) -> None:
        self.lines.append("  " + text)

    def _way(self, way: Way) -> None:
        number = self.names.number(("way", way.number))
        self._line(f"case {number}: W{number}: {{")
        self.lines += _WayReverse(self, way).text()
        self._line("}")
        self._line("next = (--tp)->u;")
        self._line(f"if (LIKELY(next == {number})) goto W{number};")
        self._line("goto DISPATCH;")

    def _entries(self) -> None:
        """What was popped is pushed, and what was pushed is popped."""
        for function in self.program.functions.values():
            code = function.resume.code
            words = function.resume.words
            self._popped(code, words)
            self._line(f"case {self.names.number(('stop', code))}:")
            self._line(f"ap -= {words_in(words) + 1};")
            for at, slot in self.on_stack(words):
                self._line(f"{self.names.adjoint(slot)} += ap[{at}];")
            self._line("goto NEXT;")
            if function.enter is not None:
                self._popped(ENTER_BY | function.enter.code, function.enter.words)
        for code, join in self.program.returns.items():
            assert join.frame is not None
            self._popped(code, join.frame.words, tuple(parts_of(join.params)))
            params = tuple(parts_of(join.params))
            waiting = RETURN_TO | code
            self._line(f"case {self.names.number(('stop', waiting))}:")
            self._line(f"ap -= {words_in(params) + 1};")
            for at, name in self._returned(params):
                self._line(f"{name} = ap[{at}];")
            self._line("goto NEXT;")
            self._line(f"case {self.names.number(('pop', waiting))}:")
            for at, name in self._returned(params):
                self._line(f"ap[{at}] = {name};")
            self._line(f"ap += {words_in(params) + 1};")
            self._line("goto NEXT;")

    def _popped(
        self,
        code: int,
        words: tuple[TypedAtom, ...],
        params: tuple[TypedAtom, ...] = (),
    ) -> None:
        self._line(f"case {self.names.number(('pop', code))}:")
        for at, slot in self.on_stack(words):
            name = self.names.adjoint(slot)
            self._line(f"ap[{at}] = {name}; {name} = 0.0;")
        self._line(f"ap += {words_in(words) + 1};")
        for (_, name), param in zip(
            self._returned(params),
            (p for p in params if letter_of(p) == "d"),
            strict=True,
        ):
            if param in self.crossing:
                assert isinstance(param, Register)
                own = self.names.adjoint(param)
                self._line(f"{name} = {own}; {own} = 0.0;")
            else:
                self._line(f"{name} = 0.0;")
        self._line("goto NEXT;")

    def on_stack(self, words: tuple[TypedAtom, ...]) -> Iterator[tuple[int, Register]]:
        """The useful variables of a frame, with their places."""
        at = 0
        for word in words:
            if isinstance(word, Register) and word in self.useful:
                yield at, word
            at += words_in((word,))

    def _returned(self, words: tuple[TypedAtom, ...]) -> list[tuple[int, str]]:
        """Where the adjoint of a value on its way from a call is, and its place."""
        found: list[tuple[int, str]] = []
        at = 0
        for i, word in enumerate(words):
            if letter_of(word) == "d":
                found.append((at, f"q{i}"))
            at += words_in((word,))
        self.returned.update(dict.fromkeys(name for _, name in found))
        return found

    def returned_part(self, i: int) -> str:
        """The adjoint of a part of a function's value."""
        self.returned[f"q{i}"] = None
        return f"q{i}"


class _WayReverse:
    """The reverse of one way: straight C.

    Attributes:
        local: The adjoints of variables that the way binds, once they are not zero.
        zero: Adjoints that outlive the block and are zero here, unless added to.
    """

    def __init__(self, owner: ReverseEmission, way: Way) -> None:
        self.owner, self.way, self.names = owner, way, owner.names
        self.lines: list[str] = []
        self.bound = {step.var for step in way.steps}
        self.local: set[Register] = set()
        self.zero: dict[Register, None] = {}

    def text(self) -> list[str]:
        """The lines of the case."""
        self._take()
        self._end()
        for step in reversed(self.way.steps):
            if isinstance(step, Passed):
                if step.var in self.local:
                    self._add(step.value, self.names.local_adjoint(step.var))
            else:
                self._step(step)
        for slot in self.zero:
            self._line(f"{self.names.adjoint(slot)} = 0.0;")
        return self.lines

    def _line(self, text: str) -> None:
        self.lines.append("    " + text)

    def _take(self) -> None:
        """The values on the tape, and those that are computed of them."""
        tape = self.owner.tape[id(self.way.end)]
        if tape.kept:
            self._line(f"tp -= {len(tape.kept)};")
        for i, slot in enumerate(tape.kept):
            name = self.names.slot(slot)
            if slot.kind == "v":
                self._line(f"Row *const {name} = tp[{i}].row; (void){name};")
            else:
                self._line(f"const double {name} = tp[{i}].d; (void){name};")
        for step in tape.again:
            text = _filled(CHEAP[step.op], self._values(step, ""))
            name = self.names.slot(step.var)
            self._line(f"const double {name} = {text}; (void){name};")

    def _end(self) -> None:
        """The adjoints with which the way's end was left."""
        end = self.way.end
        match end:
            case Go():
                join = self.owner.ways.joins[end.join]
                params = tuple(parts_of(join.params))
                self._outlived(join.live)
                self._moved(params, end.args)
            case Give():
                for i, arg in enumerate(end.args):
                    if letter_of(arg) == "d":
                        self._add(arg, self.owner.returned_part(i))
            case Invoke():
                called = self.owner.program.functions[end.function]
                self._outlived(called.live)
                moved = self._take_params(called.params)
                if end.push is not None:
                    words = end.push.words
                    self._line(f"ap -= {words_in(words) + 1};")
                    for at, slot in self.owner.on_stack(words):
                        self._add(slot, f"ap[{at}]")
                self._give_params(moved, called.params, end.args)

    def _outlived(self, live: tuple[Register, ...]) -> None:
        """Variables that the way binds and the next block uses, too."""
        for slot in live:
            if slot in self.bound and slot in self.owner.crossing:
                outer = self.names.adjoint(slot)
                self.local.add(slot)
                name = self.names.local_adjoint(slot)
                self._line(f"double {name} = {outer}; (void){name};")
                self.zero[slot] = None

    def _moved(
        self, params: tuple[TypedAtom, ...], args: tuple[TypedAtom, ...]
    ) -> None:
        self._give_params(self._take_params(params), params, args)

    def _take_params(self, params: tuple[TypedAtom, ...]) -> dict[TypedAtom, str]:
        moved: dict[TypedAtom, str] = {}
        for param in params:
            if isinstance(param, Register) and param in self.owner.crossing:
                name = moved[param] = f"x{len(moved)}"
                outer = self.names.adjoint(param)
                self._line(f"const double {name} = {outer}; (void){name};")
                self.zero[param] = None
        return moved

    def _give_params(
        self,
        moved: dict[TypedAtom, str],
        params: tuple[TypedAtom, ...],
        args: tuple[TypedAtom, ...],
    ) -> None:
        for param, arg in zip(params, args, strict=True):
            if param in moved:
                self._add(arg, moved[param])

    def _add(self, atom: TypedAtom, text: str) -> None:
        """Add to the adjoint of a variable."""
        if not isinstance(atom, Register) or atom not in self.owner.useful:
            return
        if atom in self.bound:
            name = self.names.local_adjoint(atom)
            if atom in self.local:
                self._line(f"{name} += {text};")
            else:
                self.local.add(atom)
                self._line(f"double {name} = {text}; (void){name};")
        elif atom in self.zero:
            del self.zero[atom]
            self._line(f"{self.names.adjoint(atom)} = {text};")
        else:
            self._line(f"{self.names.adjoint(atom)} += {text};")

    def _step(self, step: Do) -> None:
        if step.op == "vector-set":
            row, at, value = step.args
            place = f"{self._atom(row)}->adjoint[(uint32_t){self._atom(at)}]"
            self._add(value, place)
            self._line(f"{place} = 0.0;")
        elif step.op == "make-vector":
            self._add(step.args[1], f"row_adjoint({self.names.slot(step.var)})")
        elif step.var in self.local:
            g = self.names.local_adjoint(step.var)
            if step.op == "vector-ref":
                row, at = (self._atom(arg) for arg in step.args)
                self._line(f"{row}->adjoint[(uint32_t){at}] += {g};")
                return
            values = self._values(step, g)
            for arg, rules in zip(step.args, (LEFT, RIGHT), strict=False):
                if step.op in rules:
                    self._add(arg, _filled(rules[step.op].text, values))

    def _atom(self, atom: TypedAtom) -> str:
        return self.names.atom(atom)

    def _values(self, step: Do, g: str) -> dict[str, str]:
        return {
            "a": self._atom(step.args[0]),
            "b": self._atom(step.args[-1]),
            "y": self.names.slot(step.var),
            "g": g,
        }


def _filled(text: str, values: dict[str, str]) -> str:
    """A rule's text, with the variables for its letters."""
    words = text.replace("(", " ( ").replace(")", " ) ").replace(",", " ,").split(" ")
    words = [
        "-" + values[w[1:]] if w[:1] == "-" and w[1:] in values else values.get(w, w)
        for w in words
    ]
    return " ".join(word for word in words if word)

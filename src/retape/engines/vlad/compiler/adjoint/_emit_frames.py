"""Typed code in C: variables, the frames of the stack, and the ways in from it."""

from collections.abc import Iterator

from retape.engines.vlad.compiler.adjoint._names import (
    ENTER_BY,
    RETURN_TO,
    TapeNames,
    words_in,
)
from retape.engines.vlad.compiler.adjoint._tables import given_shapes, given_types
from retape.engines.vlad.compiler.ir._ir import Atom, Cont, Register, letter_of
from retape.engines.vlad.compiler.typed._form import (
    Frame,
    TypedFunction,
    TypedProgram,
    parts_of,
)
from retape.engines.vlad.compiler.typed._ways import Ways

TYPES = {"d": "double", "b": "int", "v": "Row *", "l": "Cell *"}
FIELDS = {"d": "d", "b": "u", "v": "row", "l": "cell"}
ON_TAPE = {"d": "d", "v": "u", "l": "cell"}


class FrameEmission:
    """Variables, the frames of the stack, and the ways in from it.

    Args:
        program: The typed functions.
        ways: Their ways.
        names: Names in C, shared with the reverse.
        part: The functions that are in this text, and the joins that have frames.
        taped: Whether anything is put on the tape.
    """

    def __init__(
        self,
        program: TypedProgram,
        ways: Ways,
        names: TapeNames,
        part: TypedProgram,
        *,
        taped: bool,
    ) -> None:
        self.program, self.names, self.part = program, names, part
        self.ways = ways
        self.taped = taped
        self.given = given_types(program)
        self.gives = 0
        self.lines: list[str] = []
        self.slots: dict[Register, None] = {}
        self.returned: dict[str, None] = {}

    def declared(self, slot: Register) -> Iterator[str]:
        """The declarations of a variable."""
        name = self.names.slot(slot)
        yield f"  {self.type_of(slot)} {name} = 0; (void){name};"
        if slot.kind == "v":
            version = self.names.version(slot)
            yield f"  uint64_t {version} = 0; (void){version};"

    def type_of(self, slot: Register) -> str:
        """The type of a variable in C, which converts where a double is given to it."""
        return "int64_t" if slot in self.names.integers else TYPES[slot.kind]

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def slot(self, slot: Register) -> str:
        """The name of a variable, which is then declared."""
        self.slots[slot] = None
        return self.names.slot(slot)

    def version(self, slot: Register) -> str:
        """The name of a vector's version, which is then declared."""
        self.slots[slot] = None
        return self.names.version(slot)

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Register):
            self.slots[atom] = None
        return self.names.atom(atom)

    def integer(self, atom: Atom) -> str | None:
        """A value as an integer, if it is one."""
        if isinstance(atom, Register):
            self.slots[atom] = None
        return self.names.integer(atom)

    def record(self, number: int) -> None:
        """Put a number on the tape."""
        if self.taped:
            self.line(f"tp++->u = {number};")

    # frames

    def push(self, words: tuple[Atom, ...], code: int) -> None:
        """Put a frame on the stack."""
        count = words_in(words) + 1
        self.line(f"STACK({count})")
        for text, field in self.words(words):
            self.line(f"sp++->{field} = {text};")
        self.line(f"sp++->u = {code};")

    def words(self, words: tuple[Atom, ...]) -> Iterator[tuple[str, str]]:
        """Values as words: their texts and the members of a word's union."""
        for word in words:
            kind = letter_of(word)
            text = self.atom(word)
            yield (f"(uint64_t){text}" if kind == "b" else text), FIELDS[kind]
            if isinstance(word, Register) and kind == "v":
                yield self.version(word), "u"

    def load(self, words: tuple[Atom, ...]) -> None:
        """Take a frame from the stack, into the variables that it was pushed from."""
        self.line(f"sp -= {words_in(words) + 1};")
        at = 0
        for word in words:
            if isinstance(word, Register):
                cast = "(int)" if word.kind == "b" else ""
                self.line(f"{self.slot(word)} = {cast}sp[{at}].{FIELDS[word.kind]};")
                if word.kind == "v":
                    self.line(f"{self.version(word)} = sp[{at + 1}].u;")
            at += words_in((word,))

    def entries(self) -> None:
        """The ways in from the stack."""
        for function in self.part.functions.values():
            self._entry(function, function.resume, function.resume.code)
            if function.enter is not None:
                code = ENTER_BY | function.enter.code
                self._entry(function, function.enter, code)
        for code, join in self.part.returns.items():
            self._return(code, join)

    def halt(self) -> None:
        """The way out: the value's words stand behind the frames."""
        self.line("case HALT:")
        self.line("switch (T.gives) {")
        for number, shape in given_shapes(self.program):
            words = self.registers(tuple(parts_of(shape)))
            self.line(f"case {number}: STACK({len(words)})")
            for i, (name, field) in enumerate(words):
                self.line(f"  sp[{i}].{field} = {_to_word(name)};")
            self.line("  break;")
        self.line("default: goto GIVE_UP;")
        self.line("}")
        self.line("next = DO_END; goto LEAVE;")

    def _entry(self, function: TypedFunction, frame: Frame, code: int) -> None:
        """The case of a frame that waits to run a function."""
        self.line(f"case {code}:")
        self.load(frame.words)
        self.record(self.names.number(("pop", code)))
        self.line(f"goto F{function.index};")

    def _return(self, code: int, join: Cont) -> None:
        """The case of a frame that waits for a value, and of one that has it."""
        known, params = self.program.conts[join.name], join.params
        registers = self.registers(params)
        waiting = RETURN_TO | code
        count = words_in(params) + 1
        self.line(f"case {code}:")
        self.line(f"if (UNLIKELY(fuel < {known.cost})) {{")
        self.line(f"STACK({count})")
        for name, field in registers:
            self.line(f"sp++->{field} = {_to_word(name)};")
        self.line(f"sp++->u = {waiting};")
        self.record(self.names.number(("stop", waiting)))
        self.line("goto STOP; }")
        self.load(self.program.pushed(join.name).words)
        at = iter(registers)
        for param in params:
            assert isinstance(param, Register)
            self.line(f"{self.slot(param)} = {next(at)[0]};")
            if param.kind == "v":
                self.line(f"{self.version(param)} = {next(at)[0]};")
        if not self.ways.returned_to(join):
            self.record(self.names.number(("pop", code)))
        self.line(f"goto J{self.join_number(join.name)};")
        self.line(f"case {waiting}:")
        self.line(f"sp -= {count};")
        for i, (name, field) in enumerate(registers):
            cast = "(int)" if name.startswith("qb") else ""
            self.line(f"{name} = {cast}sp[{i}].{field};")
        self.record(self.names.number(("pop", waiting)))
        self.line("goto POP;")

    def registers(self, words: tuple[Atom, ...]) -> list[tuple[str, str]]:
        """Where a value is on its way from a call, word by word."""
        found: list[tuple[str, str]] = []
        for i, word in enumerate(words):
            kind = letter_of(word)
            found.append((f"q{kind}{i}", FIELDS[kind]))
            if kind == "v":
                found.append((f"qn{i}", "u"))
        self.returned.update(dict.fromkeys(name for name, _ in found))
        return found

    def join_number(self, name: str) -> int:
        return self.names.number(("join", name))


def _to_word(name: str) -> str:
    return f"(uint64_t){name}" if name.startswith("qb") else name

"""Names in the C of typed code, and where adjoints are between its ways."""

from collections.abc import Iterator

from retape.engines.vlad.compiler.adjoint._emit_rows import EachFunctions
from retape.engines.vlad.compiler.ir._c_text import real_text
from retape.engines.vlad.compiler.ir._ir import Atom, Lit, Register, letter_of
from retape.engines.vlad.compiler.typed._form import TypedProgram
from retape.engines.vlad.compiler.typed._ways import Ways
from retape.engines.vlad.compiler.typed._whole import is_whole_constant

_FIRST_NUMBER = 3
"""Numbers on the tape below are the runtime's: see `runtime/typed.h`."""

RETURN_TO, ENTER_BY = 1 << 30, 1 << 29
"""What is added to a frame's code: see `runtime/typed_stage.h`."""


class TapeNames:
    """Names of variables in C, and the numbers of what stands on the tape.

    Args:
        whole: The variables that are always whole.
        as_integers: Whether they are integers in C. Where there is a tape they are not:
            it has doubles, and there are more variables than registers for integers.
    """

    def __init__(
        self, whole: frozenset[Register] = frozenset(), *, as_integers: bool = False
    ) -> None:
        self.whole = whole
        self.integers: frozenset[Register] = whole if as_integers else frozenset()
        self.each = EachFunctions()
        self._variables: dict[Register, int] = {}
        self._numbers: dict[object, int] = {}

    def slot(self, slot: Register) -> str:
        """A variable's value."""
        return f"{slot.kind}{self._index(slot)}"

    def version(self, slot: Register) -> str:
        """The version of a vector that a variable holds."""
        return f"n{self._index(slot)}"

    def adjoint(self, slot: Register) -> str:
        """A variable's adjoint between blocks."""
        return f"c{self._index(slot)}"

    def local_adjoint(self, slot: Register) -> str:
        """A variable's adjoint within a block."""
        return f"l{self._index(slot)}"

    def remembered(self, slot: Register) -> tuple[str, str]:
        """The last operand of the function whose value a variable is; that value."""
        return f"o{self._index(slot)}", f"y{self._index(slot)}"

    def atom(self, atom: Atom) -> str:
        """A value; an integer as a double."""
        if isinstance(atom, Register):
            name = self.slot(atom)
            return f"real_of({name})" if atom in self.integers else name
        assert isinstance(atom, Lit), "typed code has no other constants"
        if isinstance(atom.value, tuple):
            return "NULL"
        if isinstance(atom.value, bool):
            return str(int(atom.value))
        return real_text(atom.value)

    def integer(self, atom: Atom) -> str | None:
        """A value as an integer, if it is one."""
        if isinstance(atom, Register):
            return self.slot(atom) if atom in self.integers else None
        if not is_whole_constant(atom):
            return None
        assert isinstance(atom, Lit) and isinstance(atom.value, float)
        return f"(int64_t){int(atom.value)}"

    def number(self, what: object) -> int:
        """The number on the tape of a way, or of something else that has a reverse."""
        return self._numbers.setdefault(what, _FIRST_NUMBER + len(self._numbers))

    def _index(self, slot: Register) -> int:
        return self._variables.setdefault(slot, len(self._variables))


def words_in(atoms: tuple[Atom, ...]) -> int:
    """The words of a frame without its code: a vector is two."""
    return sum(2 if letter_of(atom) == "v" else 1 for atom in atoms)


class AdjointPlaces:
    """The variables and the places on the stack that hold adjoints between ways.

    Args:
        program: The typed functions.
        ways: Their ways.
        names: Names in C, shared with what is recorded.
        useful: Variables that the result depends on smoothly: those with an adjoint.

    Attributes:
        crossing: Useful variables that outlive a block, each a variable in C.
        returned: The names of the adjoints of values on their way from a call.
    """

    def __init__(
        self,
        program: TypedProgram,
        ways: Ways,
        names: TapeNames,
        useful: frozenset[Register],
    ) -> None:
        self.names, self.useful = names, useful
        self.returned: dict[str, None] = {}
        atoms: list[Atom] = []
        for function in program.functions.values():
            atoms += [*function.params, *function.live]
            if function.enter is not None:
                atoms += function.enter.words
        for join in (*ways.blocks.values(), *program.returns.values()):
            atoms += [*join.params, *program.conts[join.name].live]
        self.crossing = dict.fromkeys(
            a for a in atoms if isinstance(a, Register) and a in useful
        )

    def on_stack(self, words: tuple[Atom, ...]) -> Iterator[tuple[int, Register]]:
        """The useful variables of a frame, with their places."""
        at = 0
        for word in words:
            if isinstance(word, Register) and word in self.useful:
                yield at, word
            at += words_in((word,))

    def returned_parts(self, words: tuple[Atom, ...]) -> list[tuple[int, str]]:
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

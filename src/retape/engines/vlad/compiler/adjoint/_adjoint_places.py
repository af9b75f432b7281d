"""Where adjoints are between the ways of typed code, in its C."""

from collections.abc import Iterator

from retape.engines.vlad.compiler.adjoint._names import TapeNames, words_in
from retape.engines.vlad.compiler.ir._ir import Atom, Register, letter_of
from retape.engines.vlad.compiler.typed._form import TypedProgram
from retape.engines.vlad.compiler.typed._ways import Ways


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
        self.returned: dict[str, None] = {"q0": None}
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

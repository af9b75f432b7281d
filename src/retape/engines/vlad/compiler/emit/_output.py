"""The text that emission writes, and the variables of C that it declares."""

import re

from retape.engines.vlad.compiler.emit._static_data import constant_text
from retape.engines.vlad.compiler.ir._ir import Atom, FunRef, Lit, Quoted


def label(name: str) -> str:
    """A variable's or a continuation's name in C."""
    return "v_" + re.sub(r"\W", "_", name, flags=re.ASCII)


class Output:
    """Lines of C, in the four places where they go.

    Attributes:
        lines: The blocks.
        cases: The ways in from frames.
        entries: The ways in through closures.
        registers: The variables of C that are mentioned.
        max_words: The most that a block allocates.
        most_passed: The most values that a call of another part passes.
        depth: How deep lines are indented.
    """

    def __init__(self, used: set[str]) -> None:
        self.lines: list[str] = []
        self.cases: list[str] = []
        self.entries: list[str] = []
        self.registers: set[str] = set()
        self.max_words = self.most_passed = 0
        self.depth = 1
        self._used = used

    def register(self, name: str) -> str:
        """The variable of C that holds a variable, which is declared."""
        self.registers.add(label(name))
        return label(name)

    def is_used(self, name: str) -> bool:
        """Tell whether anything needs a variable."""
        return name in self._used

    def line(self, text: str) -> None:
        """Write a line of a block."""
        self.lines.append("  " * self.depth + text)

    def set(self, name: str, value: str) -> None:
        """Assign a variable, if anything needs it."""
        if name not in self._used:
            return
        self.line(f"{self.register(name)} = {value};")

    def atom(self, atom: Atom) -> str:
        """An atom in C."""
        match atom:
            case str():
                return self.register(atom)
            case Lit():
                return constant_text(atom.value)
            case Quoted():
                return f"quoted[{atom.index}]"
            case FunRef():
                return f"closure[{atom.function}]"

    def allocate(self, var: str, tag: str, code: int, fields: tuple[Atom, ...]) -> None:
        """Make an object, and a variable that holds it."""
        self.line("{")
        self.line(f"  ALLOCATE(o, {code}, {len(fields)})")
        for i, atom in enumerate(fields):
            self.line(f"  o->field[{i}] = {self.atom(atom)};")
        self.set(var, f"tagged(TAG_{tag}, o)")
        self.line("}")

"""The text that emission writes, and frames: what is kept where a run can stop."""

import re
from collections.abc import Container, Iterator, Sequence

from retape.engines.vlad.compiler.emit._static_data import constant_text
from retape.engines.vlad.compiler.ir._ir import (
    FIRST_CODE,
    Atom,
    Cont,
    Fun,
    FunRef,
    Lit,
    Quoted,
    Register,
)
from retape.engines.vlad.compiler.ir._liveness import Cost, Costs, Liveness
from retape.engines.vlad.language._diagnostics import Where


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

    def __init__(self, used: Container[str]) -> None:
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


class FrameLayout:
    """The frames of one module.

    Attributes:
        live: What each function and continuation needs.
        costs: What each block may cost.
        places: Where the continuation of each code stands.
        codes: The code of each continuation that a call returns to.
    """

    def __init__(self, live: Liveness, out: Output) -> None:
        self.out = out
        self.live = live
        self.costs = Costs(self.live)
        self._codes = 0
        self.places: dict[int, Where] = {}
        self.codes: dict[str, int] = {}

    def check(self, cost: Cost, label: str) -> None:
        self.out.line(f"if (UNLIKELY({self._ends(cost)})) goto {label};")

    def _ends(self, cost: Cost) -> str:
        """The test for the end of the steps, or of the nursery.

        A block that allocates nothing fills it, too, where its reals are dual numbers.
        """
        self.out.max_words = max(self.out.max_words, cost.words)
        return f"fuel < {cost.steps} || hp + {cost.words} > limit"

    def pause(self, fun: Fun, cost: Cost, needs: Sequence[Register], code: int) -> None:
        self.out.lines.append(f"S{fun.index}: {{")
        self.out.line("G.hp = hp;")
        self.out.line(f"Object *o = paused_object({code}, {len(needs) + 1});")
        self.out.line("hp = G.hp;")
        self.out.line("o->field[0] = k;")
        for i, name in enumerate(needs, 1):
            self.out.line(f"o->field[{i}] = {self.out.atom(name)};")
        self.out.line("k = tagged(TAG_FRAME, o);")
        self.out.line(f"need = {cost.steps};")
        self.out.line("goto PAUSE;")
        self.out.lines.append("  }")

    def loads(self, names: Sequence[Register]) -> Iterator[str]:
        if names:
            yield "    const Object *o = object(k);"
        for i, name in enumerate(names, 1):
            yield f"    {self.out.register(name)} = o->field[{i}];"
        yield "    k = o->field[0];" if names else "    k = object(k)->field[0];"

    def code(self) -> int:
        """The code of a new frame."""
        self._codes += 1
        return FIRST_CODE + self._codes - 1

    def entry(self, term: Cont) -> None:
        cost = self.costs.conts[term.name]
        test = self._ends(cost)
        pause = f"{{ need = {cost.steps}; goto PAUSE_RETURN; }}"
        needs = sorted(self.live.conts[term.name])
        self.out.cases.append(f"  case {self.codes[term.name]}: {{")
        self.out.cases.append(f"    if (UNLIKELY({test})) {pause}")
        self.out.cases.extend(self.loads(needs))
        (param,) = term.params
        if self.out.is_used(param):
            self.out.cases.append(f"    {self.out.register(param)} = ret;")
        self.out.cases.append(f"    goto {label(term.name)};")
        self.out.cases.append("  }")
        self.places[self.codes[term.name]] = term.where

    def push(self, cont: str | None) -> None:
        """Push the frame of a continuation that a call returns to."""
        if cont is None:
            return
        needs = sorted(self.live.conts[cont])
        if cont not in self.codes:
            self.codes[cont] = self.code()
        self.out.line("{")
        self.out.line(f"  ALLOCATE(o, {self.codes[cont]}, {len(needs) + 1})")
        self.out.line("  o->field[0] = k;")
        for i, name in enumerate(needs, 1):
            self.out.line(f"  o->field[{i}] = {self.out.atom(name)};")
        self.out.line("  k = tagged(TAG_FRAME, o);")
        self.out.line("}")

"""The health of a gradient: how large cotangents are on the way, and what spoils them.

The same records for programs in JAX, in PyTorch and in step functions. They take a
fixed number of rows: a row stands for as many steps as it takes for all to fit.

    steps   0 1 2 3 4 5 6 7 8             1000 of them, 512 rows: two steps a row
    norms  [0 1][2 3][4 5][6 7][8]
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, log10
from typing import Literal

from retape._arguments import number_of
from retape._errors import PlanError

FaultKind = Literal["forward", "reverse", "growth"]

ROWS = 512
"""4 kB of norms, and as many points as a curve is wide on a screen."""

LOOKS = 32
"""Where each look takes a call of Python's, and a pass over memory."""

_BLOCKS = " ▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, eq=False)
class Fault:
    """A step that spoils a gradient, and the place in it.

    Attributes:
        kind: "forward" if the values of the program are not finite themselves;
            "reverse" if they are, and a derivative is not; "growth" if cotangents
            stay finite, but grow beyond the factor that was allowed.
        step: The step at which it happens, from 0: the first on the way back, or with
            "forward" the first on the way there. In JAX steps are counted as `explain`
            does: what is before a loop is one, and then each of its iterations; in
            PyTorch they are the operators that have a derivative.
        steps: Of the run.
        before: The largest cotangent behind that step; NaN if the values themselves
            are not finite.
        after: The same before it, infinity if one is not finite.
        operation: Its name: JAX's, such as `sqrt`; PyTorch's, such as `SqrtBackward0`;
            or of the function of `retape.adjoint`, such as `reverse_step`; "argument"
            if it was given what is not finite.
        line: `file:line (function)` where the program calls it.
        text: That line of source.
        operands: Types and ranges of what it was given.
        variable: What is spoilt: the local variable (`retape.adjoint`), the expression
            in that line (JAX), or the module that the operator is in (PyTorch).
    """

    kind: FaultKind
    step: int
    steps: int
    before: float
    after: float
    operation: str
    line: str
    text: str
    operands: str
    variable: str = ""

    def __str__(self) -> str:
        what = {
            "forward": "values are not finite (forward)",
            "reverse": "values are finite, a derivative is not (reverse)",
            "growth": "cotangents grow without bound",
        }[self.kind]
        operands = f" of {self.operands}" if self.operands else ""
        lines = [
            f"fault     {what}",
            f"step      {self.step} of {self.steps}: largest cotangent "
            f"{self.before:.3g} -> {self.after:.3g}",
            f"operation {self.operation}{operands}",
            f"line      {self.line}",
        ]
        lines += [f"          {self.text}"] if self.text else []
        return "\n".join(
            [*lines, *([f"in        {self.variable}"] * bool(self.variable))]
        )


@dataclass(frozen=True, slots=True, eq=False)
class Health:
    """How a gradient came about; `str` of it is meant to be read.

    Attributes:
        norms: The largest cotangent, from the first step to the last; infinity stands
            for what is not finite. In JAX at most 512 numbers, each the largest of its
            steps; elsewhere at most 32, each that of the first of its steps.
        steps_per_norm: Steps for which each of them stands.
        fault: What is wrong, or `None`.
        steps_per_look: Steps from one look to the next. What grows and shrinks again
            between two looks is not seen; 1 if the cotangents of all steps were looked
            at.
    """

    norms: tuple[float, ...]
    steps_per_norm: int
    fault: Fault | None
    steps_per_look: int = 1

    def __str__(self) -> str:
        finite = [n for n in self.norms if isfinite(n) and n > 0]
        low, high = (min(finite), max(finite)) if finite else (0.0, 0.0)
        lines = [
            f"norms     {low:.3g} to {high:.3g}, first step to last",
            f"          {_curve(self.norms)}",
        ]
        if self.steps_per_look > 1:
            lines.append(f"looked at every {self.steps_per_look} steps")
        return "\n".join([*lines, str(self.fault) if self.fault else "fault     none"])


def grows(norms: Sequence[float], growth: float) -> bool:
    """Tell whether norms, from the first step to the last, are not as they should be.

    They are not if one is infinite, or if one is more than `growth` times the last.

    Examples:
        >>> grows([40.0, 0.5, 1.0], 100.0), grows([40.0, 0.5, 0.1], 100.0)
        (False, True)
    """
    nonzero = [n for n in reversed(norms) if n > 0]
    return bool(nonzero) and not max(nonzero) <= growth * nonzero[0]


def check_growth(growth: float) -> None:
    """Refuse a factor that no gradient keeps.

    Raises:
        PlanError: If it is not above 1.
    """
    if not number_of(growth) > 1:
        raise PlanError(
            f"`growth={growth!r}` would call every gradient ill. Pass how many times "
            "larger cotangents may become, for example `growth=1e6`."
        )


def _curve(norms: Sequence[float], width: int = 64) -> str:
    """The norms' logarithms, drawn in characters; `x` is not finite."""
    per = max(1, -(-len(norms) // width))
    most = [max(norms[i : i + per]) for i in range(0, len(norms), per)]
    logs = [log10(n) for n in most if n > 0 and isfinite(n)]
    low, span = (min(logs), max(logs) - min(logs)) if logs else (0.0, 0.0)

    def drawn(norm: float) -> str:
        if not isfinite(norm):
            return "x"
        if norm == 0:
            return _BLOCKS[0]
        height = (log10(norm) - low) / span if span else 0.5
        return _BLOCKS[1 + round(7 * height)]

    return "".join(map(drawn, most))

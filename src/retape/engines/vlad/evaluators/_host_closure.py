"""Closures that the host makes: `(I f l)`, `R`, the interrupting capsule (Fig. 16)."""

from dataclasses import dataclass

from retape.engines.vlad.evaluators._code import Instr
from retape.engines.vlad.evaluators._link import INTERRUPT, RESUME, VAR
from retape.engines.vlad.evaluators._machine import Capsule
from retape.engines.vlad.language._builtins import NOWHERE
from retape.engines.vlad.values._values import Closure, Value


@dataclass(frozen=True, slots=True, eq=False)
class _Host:
    """A function that the paper makes in the host: its parameter, and its body."""

    name: str
    body: Instr
    size: int
    takes: bool
    builtin: bool = False

    def bind(self, argument: Value) -> tuple[Value, ...]:
        return (argument,) if self.takes else ()


def _place(index: int) -> Instr:
    return Instr(VAR, NOWHERE, index=index)


_INTERRUPT = Instr(
    INTERRUPT,
    NOWHERE,
    fn=None,
    value="interrupt",
    a=_place(1),
    b=_place(0),
    c=_place(2),
)
_I = _Host("interrupt", _INTERRUPT, 2, takes=True)
R = Closure(
    _Host("resume", Instr(RESUME, NOWHERE, fn=None, a=_place(0)), 0, takes=True), ()
)
"""(6o): the closure of (lambda (z) (resume z))."""


def interrupting(f: Value, steps: float) -> Closure:
    """(6n): I f l, the closure of (lambda (x) (interrupt f x l))."""
    return Closure(_I, (f, float(steps)))


def interrupted(capsule: Capsule, steps: float) -> Capsule:
    """(14): a capsule that interrupts when it is resumed: [[k, (I f l)]]."""
    body = _Host("capsule", capsule.code, len(capsule.env), takes=False)
    f = Closure(body, capsule.env)
    return Capsule(_INTERRUPT, ((), f, float(steps)), capsule.k, capsule.mark)

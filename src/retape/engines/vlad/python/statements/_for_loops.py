"""`for`: a loop with a hidden counter, over a `range` or the places of a sequence.

    for i in range(a, b, s): body; rest

        (let* ((i a) (stop b) (step s))
          (if (zero? step) fault
              (letrec ((loop (i x ...) (if (< i stop) body rest))) (loop i x ...))))

with `>` if the step is negative, and both tests if its sign is not known. `body` ends
in `(loop (+ i step) x' ...)`: what the body assigns to `i` does not steer the loop.
"""

import ast
from dataclasses import dataclass
from typing import TYPE_CHECKING

from retape.engines.vlad.language._core import Const, Core, If, Prim, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import (
    ADD,
    GREATER,
    IS_POSITIVE,
    IS_ZERO,
    LESS,
)
from retape.engines.vlad.python.read._types import INT
from retape.engines.vlad.python.read._variables import Variable, Variables
from retape.engines.vlad.python.statements._joins import After, Emit, only
from retape.engines.vlad.python.statements._loops import Exits, Steering
from retape.engines.vlad.python.statements._sequences import Bounds, sequence
from retape.engines.vlad.python.terms._arithmetic import fault

if TYPE_CHECKING:
    from retape.engines.vlad.python.statements._body import Body


@dataclass(frozen=True, slots=True)
class _Counter:
    """The hidden counter of one loop: names in the core language, and what is known.

    Attributes:
        sign: That of the step, or 0 if it is not known.
    """

    where: Where
    bounds: Bounds
    first: str
    last: str
    stride: str
    sign: int

    @property
    def key(self) -> str:
        """Its name among the variables, which no Python program can use."""
        return f"counter {self.first}"

    @property
    def limit(self) -> str:
        return f"limit {self.first}"

    def test(self, env: Variables) -> Core:
        """Tell whether there is one more item."""
        i, end = Var(self.where, env[self.key].name), Var(self.where, self.last)
        up, down = Prim(self.where, LESS, (i, end)), Prim(self.where, GREATER, (i, end))
        if self.sign:
            return up if self.sign > 0 else down
        rises = Prim(self.where, IS_POSITIVE, (Var(self.where, self.stride),))
        return If(self.where, rises, up, down)

    def advance(self, env: Variables) -> Core:
        """Its next value."""
        i = Var(self.where, env[self.key].name)
        by = self.bounds.step if self.sign else Var(self.where, self.stride)
        return Prim(self.where, ADD, (i, by))

    def variables(self) -> Variables:
        """The facts about it at the head of the loop."""
        stop = _constant(self.bounds.stop)
        falls_to_zero = self.sign < 0 and stop is not None and stop >= -1.0
        least = self.bounds.least if self.sign > 0 else 0 if falls_to_zero else None
        return {
            self.key: Variable(self.first, INT, least=least),
            self.limit: Variable(self.last, INT),
        }


def for_loop(
    owner: "Body", node: ast.For, env: Variables, go: After, exits: Exits | None
) -> Emit:
    """`for i in range(...)` and `for x in array`."""
    where = owner.text.where(node)
    over, fresh = sequence(owner, node, node.iter, env), owner.build.fresh
    places = Bounds(Const(where, 0.0), over.length, Const(where, 1.0))
    bounds = over.bounds or places
    names = fresh("i"), fresh("stop"), fresh("step")
    counter = _Counter(where, bounds, *names, _sign_of_step(bounds.step))

    def enter(inner: Variables, body: After) -> Emit:
        variable = inner[counter.key]
        if over.bounds is None:
            value = over.item(Var(where, variable.name))
            bind = owner.assignments.bind
            return bind(node.target, node, value, (False,), inner, body)
        if not isinstance(node.target, ast.Name):
            owner.refuse(node.target, "the variable of a `range` is a name")
        return body({**inner, node.target.id: variable})

    def after(inner: Variables) -> Emit:
        hidden = {counter.key, counter.limit}
        return go(only(inner, inner.keys() - hidden))

    steering = Steering(counter.test, enter, counter.key, counter.advance)
    emit = owner.loops.loop(
        node, steering, {**env, **counter.variables()}, after, exits
    )
    return lambda: _opened(owner, counter, over.held, emit())


def _opened(
    owner: "Body",
    counter: _Counter,
    held: tuple[tuple[str, Core], ...],
    loop: Core,
) -> Core:
    """The loop, with its bounds computed once, in Python's order."""
    where, build = counter.where, owner.build
    if not counter.sign:
        wrong = fault(where, "`range` with a step of zero")
        zero = Prim(where, IS_ZERO, (Var(where, counter.stride),))
        loop = If(where, zero, wrong, loop)
        loop = build.let_var(where, counter.stride, counter.bounds.step, loop)
    loop = build.let_var(where, counter.last, counter.bounds.stop, loop)
    loop = build.let_var(where, counter.first, counter.bounds.start, loop)
    for name, core in reversed(held):
        loop = build.let_var(where, name, core, loop)
    return loop


def _sign_of_step(step: Core) -> int:
    """The sign of a constant step; 0 if it is zero or not known."""
    value = _constant(step)
    return 0 if not value else 1 if value > 0.0 else -1


def _constant(core: Core) -> float | None:
    """The value of a constant number."""
    value = core.value if isinstance(core, Const) else None
    return value if isinstance(value, float) else None

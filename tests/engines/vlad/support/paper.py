"""The paper's own formulation: Figs. 16, 17, 18, 26 and 27, on the interpreter.

Here divide and conquer is what the paper writes down: reverse mode applied to target
functions that interrupt and resume. `(I f l)` runs f for l steps and gives a capsule;
`R` resumes a capsule; both can be interrupted again, and a capsule is a value with a
cotangent. The library's driver does the same with actions over a `Machine`, without
wrapping.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

from retape.engines.vlad.evaluators._machine import Capsule, Done, seed_value
from retape.engines.vlad.values._dual_and_taped import Real, Tape, Taped, add
from retape.engines.vlad.values._traversal import copy_graph

Value = Any
"""A value of the language, or a capsule."""

R = object()
"""(6o): what resumes a capsule."""


@dataclass(frozen=True, slots=True)
class Interrupting:
    """(6n): I f l, which runs f for l steps."""

    function: Value
    steps: int


@dataclass(frozen=True, slots=True)
class Interrupted:
    """A capsule; with `rests`, (14): one that interrupts after so many more steps."""

    capsule: Capsule
    rests: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Paper:
    """The interruption and resumption interface, and reverse mode, at one level."""

    evaluator: Any
    level: int

    def apply(self, f: Value, x: Value) -> "Done | Interrupted":
        """(6p), (6q): the shortest limit interrupts, and the others stay in force."""
        limits: list[int] = []
        while isinstance(f, Interrupting):
            limits.append(f.steps)
            f = f.function
        run = partial(self.evaluator.apply, f, x)
        if f is R:
            limits += x.rests
            run = partial(self.evaluator.resume, x.capsule)
        if not limits:
            return run()
        steps, *rests = sorted(limits)
        outcome = run(steps)
        if isinstance(outcome, Done):  # the end comes first
            return outcome
        return Interrupted(outcome, tuple(each - steps for each in rests))

    def primops(self, f: Value, x: Value) -> int:
        """(7a)."""
        done = self.apply(f, x)
        assert isinstance(done, Done), "there is no limit"
        return done.steps

    def interrupt(self, f: Value, x: Value, steps: int) -> "Interrupted":
        """(7b)."""
        capsule = self.apply(Interrupting(f, steps), x)
        assert isinstance(capsule, Interrupted), "an interruption comes before the end"
        return capsule

    def reverse(self, f: Value, x: Value, cotangent: Any) -> tuple[Value, Any]:
        """(5k), for arguments and values that may be capsules.

        A capsule's cotangent is the list of its reals' cotangents.
        """
        tape = Tape(self.level)
        lifted = _with(x, copy_graph(_roots(x), tape.input))
        inputs = list(tape.nodes)
        outcome = self.apply(f, lifted)
        if isinstance(outcome, Done):
            value = seed_value("checkpoint-*j", tape, outcome.value, cotangent)
        else:
            value = outcome
            self._seed(outcome, cotangent)
        tape.sweep()
        adjoints = iter([node.adjoint for node in inputs])
        if isinstance(x, Interrupted):
            return value, list(adjoints)
        return value, copy_graph((x,), lambda _: next(adjoints))[0]

    def _seed(self, capsule: Interrupted, cotangent: list[Real]) -> None:
        given = iter(cotangent)

        def seed(leaf: Value) -> Value:
            part = next(given)
            if type(leaf) is Taped and leaf.level == self.level:
                leaf.adjoint = add(leaf.adjoint, part)
            return leaf

        copy_graph(_roots(capsule), seed)

    # Fig. 18

    def bisection(
        self, f: Value, x: Value, y_: Any, alpha: int, steps: int
    ) -> tuple[Value, Any]:
        """Binary bisection; the steps are counted once, by the caller."""
        if steps <= alpha:
            return self.reverse(f, x, y_)  # step (0)
        half = steps // 2
        z = self.interrupt(f, x, half)  # step (2)
        y, z_ = self.bisection(R, z, y_, alpha, steps - half)  # step (3)
        _, x_ = self.bisection(Interrupting(f, half), x, z_, alpha, half)  # step (4)
        return y, x_

    # Fig. 27

    def binary(
        self, f: Value, x: Value, y_: Any, alpha: int, room: tuple[int, int], phi: int
    ) -> tuple[Value, Any]:
        """BINARY; `room` is the paper's (delta, tau)."""
        delta, tau = room
        if phi <= alpha or delta == 0 or tau == 0:
            return self.reverse(f, x, y_)
        kappa = mid(delta, tau, 0, phi)
        z = self.interrupt(f, x, kappa)
        y, z_ = self.binary(R, z, y_, alpha, (delta - 1, tau), phi - kappa)
        inner = Interrupting(f, kappa)
        _, x_ = self.binary(inner, x, z_, alpha, (delta, tau - 1), kappa)
        return y, x_

    # Fig. 26

    def treeverse(
        self,
        f: Value,
        x: Value,
        y_: Any,
        alpha: int,
        room: tuple[int, int],
        span: tuple[int, int, int],
    ) -> tuple[Value, Any]:
        """TREEVERSE; `span` is the paper's (beta, sigma, phi)."""
        delta, tau = room
        beta, sigma, phi = span
        if sigma > beta:
            z = self.interrupt(f, x, sigma - beta)
            return self._first(R, z, y_, alpha, (delta - 1, tau), (sigma, phi))
        return self._first(f, x, y_, alpha, room, (sigma, phi))

    def _first(
        self,
        f: Value,
        x: Value,
        y_: Any,
        alpha: int,
        room: tuple[int, int],
        span: tuple[int, int],
    ) -> tuple[Value, Any]:
        """FIRST, then REST: the children of a node, from the last to the first."""
        (delta, tau), (sigma, phi) = room, span
        values: list[Value] = []
        while phi - sigma > alpha and delta != 0 and tau != 0:
            kappa = mid(delta, tau, sigma, phi)
            part = (sigma, kappa, phi)
            y, y_ = self.treeverse(f, x, y_, alpha, (delta, tau), part)
            values.append(y)
            phi, tau = kappa, tau - 1
        y, x_ = self.reverse(Interrupting(f, phi - sigma), x, y_)
        return [*values, y][0], x_


def mid(delta: int, tau: int, sigma: int, phi: int) -> int:
    """Equation (16) of Griewank 1992: where an interval is cut."""
    kappa = -(-(delta * sigma + tau * phi) // (delta + tau))
    return min(max(kappa, sigma + 1), phi - 1)


def _roots(x: Value) -> tuple[Value, ...]:
    return (x.capsule.env, x.capsule.k) if isinstance(x, Interrupted) else (x,)


def _with(x: Value, roots: tuple[Value, ...]) -> Value:
    if isinstance(x, Interrupted):
        env, k = roots
        return Interrupted(Capsule(x.capsule.code, env, k, x.capsule.mark), x.rests)
    return roots[0]

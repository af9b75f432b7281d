"""The three derivatives, for the interpreter and the hybrid: (2i), (2j), Fig. 18.

They stand above the evaluator, which only looks their names up in its table, and call
it again: a derivative is one step of the run around it, and nothing interrupts it
(section 7.3 of the paper). Its level is one more than that around it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from retape.engines.vlad.evaluators._machine import (
    Evaluator,
    EvaluatorMachine,
    seed_value,
)
from retape.engines.vlad.evaluators._second_order import (
    EnclosingCall,
    enclosing_call,
    tangents_at,
    with_tangents,
)
from retape.engines.vlad.values._dual_and_taped import Dual, Real, Tape
from retape.engines.vlad.values._primitives import Table
from retape.engines.vlad.values._traversal import conform, flatten_tree, rebuild
from retape.engines.vlad.values._values import Mismatch, Value

MAX_LEVEL = 100
"""Derivatives nested deeper than this are refused, in all three implementations."""

Drive = Callable[[EvaluatorMachine], tuple[Value, Value]]
"""What reverses a machine: the library's driver under some plan."""


class Operators:
    """`j*`, `*j` and `checkpoint-*j` over one evaluator.

    Args:
        evaluator: The evaluator.
        drive: What reverses a machine.
        symmetric: Whether second derivatives are: partials that users give need not
            be those of one function.
    """

    def __init__(
        self, evaluator: Evaluator, drive: Drive, symmetric: bool = True
    ) -> None:
        self.evaluator = evaluator
        self.drive = drive
        self.symmetric = symmetric
        self.level = 0
        self.outermost = ""

    def table(self) -> Table:
        return {
            "j*": self.forward,
            "*j": self.reverse,
            "checkpoint-*j": self.checkpoint,
        }

    @contextmanager
    def _level(self, name: str) -> Iterator[int]:
        if self.level == MAX_LEVEL:
            raise Mismatch(
                f"derivatives are nested more than {MAX_LEVEL} deep; does the program "
                "differentiate itself without end?"
            )
        if self.level == 0:
            self.outermost = name
        self.level += 1
        try:
            yield self.level
        finally:
            self.level -= 1

    def forward(self, function: Value, argument: Value, tangent: Value) -> Value:
        """(2i): pair the argument with its tangent, apply, take the result apart."""
        tangents = conform("j*", "tangent", argument, tangent)
        leaves, shape = flatten_tree(argument)
        with self._level("j*") as level:
            duals = [Dual(level, x, dx) for x, dx in zip(leaves, tangents, strict=True)]
            value = self.evaluator.apply(function, rebuild(shape, duals)).value
        results, shape = flatten_tree(value)
        mine = [type(y) is Dual and y.level == level for y in results]
        primals = [y.primal if m else y for y, m in zip(results, mine, strict=True)]
        moved = [y.tangent if m else 0.0 for y, m in zip(results, mine, strict=True)]
        return rebuild(shape, primals), rebuild(shape, moved)

    def reverse(self, function: Value, argument: Value, cotangent: Value) -> Value:
        """(2j): tape the application, seed its value, sweep back."""
        leaves, shape = flatten_tree(argument)
        with self._level("*j") as level:
            tape = Tape(level)
            inputs = [tape.input(leaf) for leaf in leaves]
            value = self.evaluator.apply(function, rebuild(shape, inputs)).value
            primal = seed_value("*j", tape, value, cotangent)
            tape.sweep()
        return primal, rebuild(shape, [node.adjoint for node in inputs])

    def checkpoint(self, function: Value, argument: Value, cotangent: Value) -> Value:
        """Fig. 18, under whatever plan the driver follows.

        Inside another reverse mode, it is one operation of that tape.
        """
        call = None
        if self.level > 0 and self.symmetric:
            call = enclosing_call(function, argument, cotangent)
        if call is None:
            return self._checkpoint(function, argument, cotangent)
        mark = self.evaluator.world.mark
        value, found = self.checkpoint(*call.job)
        return call.record(value, found, lambda b, a: self._second(call, mark, b, a))

    def _checkpoint(
        self, function: Value, argument: Value, cotangent: Value, whole: bool = False
    ) -> Value:
        with self._level("checkpoint-*j") as level:
            job = (function, argument, cotangent)
            machine = EvaluatorMachine(self.evaluator, level, job)
            machine.whole = whole
            return self.drive(machine)

    def _second(
        self, call: EnclosingCall, mark: tuple[int, int], by_argument: Any, by_seed: Any
    ) -> tuple[list[Real], list[Real]]:
        """The operator's own derivative along tangents of its argument and seed.

        What was read and printed is so again.
        """
        world = self.evaluator.world
        now = world.mark
        world.rewind(mark)
        function, argument, seed = call.job
        with self._level("checkpoint-*j") as level:
            moved = with_tangents(level, argument, by_argument)
            seeds = with_tangents(level, seed, by_seed)
            value, found = self._checkpoint(function, moved, seeds, whole=True)
        world.rewind(now)
        return tangents_at(level, found), tangents_at(level, flatten_tree(value)[0])

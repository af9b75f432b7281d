"""The three derivatives, for the interpreter and the hybrid: (2i), (2j), Fig. 18.

They stand above the evaluator, which only looks their names up in its table, and call
it again: a derivative is one step of the run around it, and nothing interrupts it
(section 7.3 of the paper). Its level is one more than that around it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from retape.engines.vlad.evaluators._machine import (
    Evaluator,
    EvaluatorMachine,
    seed_value,
)
from retape.engines.vlad.values._dual_and_taped import Dual, Tape
from retape.engines.vlad.values._primitives import Table
from retape.engines.vlad.values._traversal import conform, flatten_tree, rebuild
from retape.engines.vlad.values._values import Mismatch, Value

MAX_LEVEL = 100
"""Derivatives nested deeper than this are refused, in all three implementations."""

Drive = Callable[[EvaluatorMachine], tuple[Value, Value]]
"""What reverses a machine: the library's driver under some plan."""


class Operators:
    """`j*`, `*j` and `checkpoint-*j` over one evaluator."""

    def __init__(self, evaluator: Evaluator, drive: Drive) -> None:
        self.evaluator = evaluator
        self.drive = drive
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
        """Fig. 18, under whatever plan the driver follows."""
        with self._level("checkpoint-*j") as level:
            job = (function, argument, cotangent)
            machine = EvaluatorMachine(self.evaluator, level, job)
            return self.drive(machine)

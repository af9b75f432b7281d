"""The three derivatives, for the interpreter and the hybrid: (2i), (2j), Fig. 18.

They stand above the evaluator, which only looks their names up in its table, and call
it again: a derivative is one step of the run around it, and nothing interrupts it
(section 7.3 of the paper). Its level is one more than that around it. Inside of
`checkpoint-*j` the plan holds for all three: see `_second_order`.
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
    primal_at,
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
        self.planned = 0

    def table(self) -> Table:
        return {
            "j*": self.forward,
            "*j": self.reverse,
            "checkpoint-*j": self.checkpoint,
        }

    @contextmanager
    def _level(self) -> Iterator[int]:
        if self.level == MAX_LEVEL:
            raise Mismatch(
                f"derivatives are nested more than {MAX_LEVEL} deep; does the program "
                "differentiate itself without end?"
            )
        self.level += 1
        try:
            yield self.level
        finally:
            self.level -= 1

    def forward(self, function: Value, argument: Value, tangent: Value) -> Value:
        """(2i): pair the argument with its tangent, apply, take the result apart.

        Under a plan, it is one operation of the tape of the reverse mode around it.
        """
        conform("j*", "tangent", argument, tangent)
        call = None
        if self.planned and self.symmetric:
            call = enclosing_call(function, argument, tangent)
        if call is None:
            return self._forward(function, argument, tangent)
        mark = self.evaluator.world.mark
        value, moved = self.forward(*call.job)
        return call.record(value, moved, lambda a, b: self._pulled(call, mark, a, b))

    def _forward(self, function: Value, argument: Value, tangent: Value) -> Value:
        tangents = flatten_tree(tangent)[0]
        leaves, shape = flatten_tree(argument)
        with self._level() as level:
            duals = [Dual(level, x, dx) for x, dx in zip(leaves, tangents, strict=True)]
            value = self.evaluator.apply(function, rebuild(shape, duals)).value
        results, shape = flatten_tree(value)
        primals = [primal_at(level, y) for y in results]
        return rebuild(shape, primals), rebuild(shape, tangents_at(level, results))

    def reverse(self, function: Value, argument: Value, cotangent: Value) -> Value:
        """(2j): tape the application, seed its value, sweep back.

        Under a plan, it is `checkpoint-*j`, whose tapes do not grow with its run.
        """
        if self.planned:
            return self.checkpoint(function, argument, cotangent, "*j")
        leaves, shape = flatten_tree(argument)
        with self._level() as level:
            tape = Tape(level)
            inputs = [tape.input(leaf) for leaf in leaves]
            value = self.evaluator.apply(function, rebuild(shape, inputs)).value
            primal = seed_value("*j", tape, value, cotangent)
            tape.sweep()
        return primal, rebuild(shape, [node.adjoint for node in inputs])

    def checkpoint(
        self,
        function: Value,
        argument: Value,
        cotangent: Value,
        name: str = "checkpoint-*j",
    ) -> Value:
        """Fig. 18, under whatever plan the driver follows.

        Inside another reverse mode, it is one operation of that tape.
        """
        call = None
        if self.level > 0 and self.symmetric:
            call = enclosing_call(function, argument, cotangent)
        if call is None:
            return self._checkpoint(function, argument, cotangent, name)
        mark = self.evaluator.world.mark
        value, found = self.checkpoint(*call.job, name)
        return call.record(value, found, lambda a, b: self._second(call, mark, a, b))

    def _checkpoint(
        self,
        function: Value,
        argument: Value,
        cotangent: Value,
        name: str,
        whole: bool = False,
    ) -> Value:
        with self._level() as level:
            job = (function, argument, cotangent)
            machine = EvaluatorMachine(self.evaluator, level, job, name)
            machine.whole = whole
            self.planned += 1
            try:
                return self.drive(machine)
            finally:
                self.planned -= 1

    def _second(
        self, call: EnclosingCall, mark: tuple[int, int], by_value: Any, by_found: Any
    ) -> tuple[list[Real], list[Real]]:
        """The cotangents of `checkpoint-*j`: its own derivative along tangents."""
        function, argument, seed = call.job
        with self._again("checkpoint-*j", mark) as level:
            moved = with_tangents(level, argument, by_found)
            seeds = with_tangents(level, seed, by_value)
            value, found = self._checkpoint(
                function, moved, seeds, "checkpoint-*j", whole=True
            )
        return tangents_at(level, found), tangents_at(level, flatten_tree(value)[0])

    def _pulled(
        self, call: EnclosingCall, mark: tuple[int, int], by_value: Any, by_moved: Any
    ) -> tuple[list[Real], list[Real]]:
        """The cotangents of `j*`: reverse mode of its function on dual numbers."""
        function, argument, tangent = call.job
        with self._again("j*", mark) as level:
            moved = with_tangents(level, argument, flatten_tree(tangent)[0])
            _, shape = flatten_tree(call.value)
            seeds = with_tangents(level, rebuild(shape, by_moved), by_value)
            _, found = self._checkpoint(function, moved, seeds, "j*", whole=True)
        by_tangent = [primal_at(level, each) for each in found[: len(call.seeds)]]
        return tangents_at(level, found), by_tangent

    @contextmanager
    def _again(self, name: str, mark: tuple[int, int]) -> Iterator[int]:
        """A level above that of a sweep; what was read and printed is so again."""
        world = self.evaluator.world
        now = world.mark
        world.rewind(mark)
        with self._level() as level:
            yield level
        world.rewind(now)

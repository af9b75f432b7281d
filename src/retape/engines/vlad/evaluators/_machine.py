"""The interpreter and the hybrid as a `Machine`: Fig. 16 under the library's driver.

A capsule is the evaluator's registers. To reverse a stage, the graph of its capsule is
copied with a tape's number for every real; the stage runs; and the cotangents of the
capsule at its end, position by position in the same walk, seed the sweep. Both walks
see the same graph, because running a copy of a state makes a copy of what running the
state makes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from retape.engines.vlad.values._dual_and_taped import Real, Tape, Taped, add
from retape.engines.vlad.values._primitives import World
from retape.engines.vlad.values._traversal import (
    conform,
    copy_graph,
    flatten_tree,
    graph_size,
    rebuild,
)
from retape.engines.vlad.values._values import Value


@dataclass(frozen=True, slots=True)
class Capsule:
    """An interrupted run.

    Attributes:
        code: What is evaluated next; `None` before the first step.
        env: Its environment; before the first step, the argument and the function.
        k: The continuation.
        mark: How far the run had read and printed.
    """

    code: Any
    env: tuple[Value, ...]
    k: Any
    mark: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Done:
    """A finished run: its value and the number of its steps."""

    value: Value
    steps: int


class Evaluator(Protocol):
    """An evaluator, as a machine needs it: apply, count, interrupt, resume."""

    world: World

    def apply(self, function: Value, argument: Value, limit: int = ...) -> Any: ...

    def resume(self, capsule: Capsule, limit: int = ...) -> Any: ...


class EvaluatorMachine:
    """The application of a function to an argument, with the cotangent of its value."""

    def __init__(
        self,
        evaluator: Evaluator,
        level: int,
        job: tuple[Value, Value, Value],
        name: str = "checkpoint-*j",
    ) -> None:
        self.evaluator = evaluator
        self.name = name
        self.level = level
        self.whole = False
        self.function, argument, self.seed = job
        leaves, self.shape = flatten_tree(argument)
        self.inputs = len(leaves)
        unshared = rebuild(self.shape, leaves)
        self.first = Capsule(
            None, (unshared, self.function), None, evaluator.world.mark
        )
        self.steps: int | None = None
        self.end = evaluator.world.mark
        self.value: Value = None

    def length(self) -> int:
        """PRIMOPS (7a): run to the end once, and count."""
        if self.steps is not None:
            return self.steps
        done = self.evaluator.resume(self.first)
        self.end = self.evaluator.world.mark
        self.steps = int(done.steps)
        self.value = done.value
        return self.steps

    def start(self) -> Capsule:
        return self.first

    def advance(self, capsule: Capsule, steps: int) -> tuple[Capsule, int]:
        """INTERRUPT (7b)."""
        outcome = self.evaluator.resume(capsule, steps)
        if isinstance(outcome, Done):
            return Capsule(_Ended, (), None, self.evaluator.world.mark), outcome.steps
        return outcome, steps

    def reverse(
        self, capsule: Capsule, steps: int, cotangent: list[Real] | None
    ) -> list[Real]:
        """Tape a stage from a capsule and sweep it back: step (0) of Fig. 18."""
        tape = Tape(self.level)
        env, k = copy_graph((capsule.env, capsule.k), tape.input)
        inputs = list(tape.nodes)
        taped = Capsule(capsule.code, env, k, capsule.mark)
        if cotangent is None:
            self._seed_value(tape, self.evaluator.resume(taped).value)
        else:
            stop = self.evaluator.resume(taped, steps)
            _seed_capsule(self.level, stop, cotangent)
        tape.sweep()
        return [node.adjoint for node in inputs]

    def _seed_value(self, tape: Tape, value: Value) -> None:
        self.value = seed_value(self.name, tape, value, self.seed)
        self.end = self.evaluator.world.mark

    def nbytes(self, capsule: Capsule) -> int:
        return graph_size((capsule.env, capsule.k))

    def finish(self, cotangent: list[Real]) -> tuple[Value, Any]:
        """The value, and the cotangent of the argument.

        With `whole`, a list for the reals of the argument and of the function.
        """
        self.evaluator.world.rewind(self.end)
        if self.whole:
            return self.value, cotangent
        return self.value, rebuild(self.shape, cotangent[: self.inputs])


_Ended = "ended"


def _seed_capsule(level: int, capsule: Capsule, cotangent: Sequence[Real]) -> None:
    """Add the cotangent of each real in a capsule to its adjoint."""
    remaining = iter(cotangent)

    def seed(leaf: Value) -> Value:
        given = next(remaining)
        if type(leaf) is Taped and leaf.level == level:
            leaf.adjoint = add(leaf.adjoint, given)
        return leaf

    copy_graph((capsule.env, capsule.k), seed)
    assert next(remaining, None) is None, "a stage ended in another state than before"


def seed_value(name: str, tape: Tape, value: Value, seed: Value) -> Value:
    """Add a value's cotangent to its adjoints; return the value without the tape."""
    given = conform(name, "cotangent", value, seed)
    leaves, shape = flatten_tree(value)
    for index, leaf in enumerate(leaves):
        if type(leaf) is Taped and leaf.tape is tape:
            leaf.adjoint = add(leaf.adjoint, given[index])
            leaves[index] = leaf.primal
    return rebuild(shape, leaves)

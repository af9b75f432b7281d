"""`retape.forward`: the value first, and gradients later, if they are wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Generic, TypeVar, cast
from weakref import finalize

from retape._adjoint import Adjoint
from retape._adjoint_arguments import machine_of, planned, seeded
from retape._errors import PlanError
from retape._forked._machine import refuse_hidden
from retape.driver._loop import Run
from retape.driver._run import run_back, run_to_the_end
from retape.driver._steps._program import Program
from retape.driver._steps._step_machine import StepMachine
from retape.plan._base import Plan
from retape.plan._constructors import budgeted
from retape.storage import copy_tree
from retape.storage._base import is_durable
from retape.storage._disk import AnyStore, store_of

X = TypeVar("X")
G = TypeVar("G")


class Forward(Generic[X, G]):
    """A run that has come to its end, with the snapshots of the way.

    Attributes:
        value: The state after the last step.
        cost: The sum of the cost terms of all states; `None` without `cost`.
        length: The number of steps.
    """

    def __init__(
        self, machine: StepMachine[X, G], paused: Run, claim: ExitStack
    ) -> None:
        self._machine, self._paused = machine, paused
        assert machine.end is not None
        _, self.length, value, self.cost = machine.end
        self.value: X = copy_tree(value)
        self.close = finalize(self, claim.close)
        """Give the snapshots up, as the end of this object does."""

    def gradient(self, seed: Callable[[X], G] | None = None) -> Adjoint[X, G]:
        """Run the adjoint back, once.

        Args:
            seed: From the last state to its cotangent; it may be left out if there is a
                `cost_gradient`.

        Returns:
            What `retape.adjoint` returns; its report has both ways.

        Raises:
            PlanError: If the way back was made before, or there is no cotangent.
        """
        return self._back(self._machine.program, seed)

    def gradients(self, seeds: Iterable[Callable[[X], G]]) -> list[Adjoint[X, G]]:
        """Run the adjoint back once for several objectives of the last state.

        Each step is run again as often as for one; `reverse_step` is called for each.

        Args:
            seeds: Functions from the last state to its cotangent.

        Returns:
            A result for each, with one report.
        """
        each = list(seeds) if isinstance(seeds, Iterable) else []
        if not each or not all(map(callable, each)):
            raise PlanError(
                f"`seeds={seeds!r}` is not valid: pass a list of functions, each from "
                "the last state to its cotangent."
            )
        of = self._machine.program
        many = replace(
            of,
            reverse_step=partial(_for_each, of.reverse_step),
            cost_gradient=of.cost_gradient and partial(_of_each, of, len(each)),
        )
        found = self._back(many, lambda x: tuple(s(copy_tree(x)) for s in each))
        cotangents = cast("tuple[G, ...]", found.cotangent)
        return [replace(found, cotangent=g) for g in cotangents]

    def _back(self, of: Program[Any, Any], seed: Any) -> Adjoint[Any, Any]:
        if not self.close.alive:
            raise PlanError(
                "this `Forward` has been run back, or closed, and its snapshots are "
                "gone. Pass several seeds to `gradients`, which runs back once for all "
                "of them, or call `retape.forward` again."
            )
        self._machine.program = of
        seeded(self._machine, seed, "Forward.gradient")
        try:
            (state, cost, cotangent, *_), report = run_back(self._paused)
        finally:
            self.close()
        return Adjoint(state, cotangent, report, cost)


def forward(
    program: Program[X, G],
    x0: X,
    *,
    steps: int | None = None,
    plan: Plan | None = None,
    memory: float | str | None = None,
    store: AnyStore | None = None,
) -> Forward[X, G]:
    """Run a simulation to its end, keep what a gradient needs, and wait.

    For a line search, which asks for values and for a gradient where it stays; and for
    several objectives of one run. The work is that of `retape.adjoint`: nothing is run
    twice for the value's sake.

    Args:
        program: As in `retape.adjoint`.
        x0: The start state.
        steps: The number of steps; left out if the program has `done`.
        plan: How memory and time are traded; by default
            `retape.fixed_space(snapshots=20)`. The tape of its last stage waits, too.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        store: Where snapshots wait: a `MemoryStore`, or one around it.

    Returns:
        The value, and what runs back.

    Raises:
        PlanError: If the arguments do not go together, or the store outlives the
            process: a run that is to survive is one call, `retape.adjoint`.
        StoreError: If `store` is none.
        MachineError: When it is run, if a schedule is passed that ends elsewhere.

    Examples:
        The value of x -> x**8 at 1.5, and derivatives of it and of its logarithm.

        >>> import retape
        >>> square = retape.Program(lambda x, k: x * x, lambda x, k, g: 2 * x * g)
        >>> run = retape.forward(square, 1.5, steps=3)
        >>> run.value
        25.62890625
        >>> [g.cotangent for g in run.gradients([lambda x: 1.0, lambda x: 1 / x])]
        [136.6875, 5.333333333333334]
    """
    plan, store = budgeted(plan, memory), store_of(store)
    refuse_hidden(program, "forward")
    machine = machine_of(program, x0, steps)
    if is_durable(store):
        raise PlanError(
            f"`store={store!r}` outlives its process, and a value that waits for its "
            "gradient does not. Pass a `retape.MemoryStore`, or call `retape.adjoint`, "
            "which a later process can resume."
        )
    chosen, tape_bytes = planned(machine, plan, store)
    return Forward(machine, *run_to_the_end(machine, chosen, store, tape_bytes))


def _for_each(reverse_step: Any, needed: Any, k: int, cotangents: Any) -> Any:
    """The adjoint of a step for several cotangents; it may overwrite what it is given.

    What it returns may lie in one buffer of its own.
    """
    return tuple(
        copy_tree(reverse_step(copy_tree(needed), k, each)) for each in cotangents
    )


def _of_each(of: Program[Any, Any], many: int, x: Any, k: int) -> Any:
    """The derivative of a cost term, a part of each objective."""
    assert of.cost_gradient is not None
    found = copy_tree(of.cost_gradient(x, k))
    return tuple(copy_tree(found) for _ in range(many))

"""A module's method under a budget while it trains, as trainers' callbacks ask."""

from collections.abc import Callable
from typing import Any

import torch

from retape._warn import warn
from retape.engines.eager._errors import PlanError
from retape.engines.eager.api._budgeted_module import Budgeted
from retape.engines.eager.api._recompute import Recomputation, recompute
from retape.engines.eager.trace._report import EagerReport


class StepBudget:
    """A budget for each call of a module's method, from `begin` to `end`.

    Calls in evaluation mode, or without gradients, are left as they are.

    Args:
        memory: The budget of one call, in bytes or as text such as `"2GB"`.

    Raises:
        PlanError: If it is no budget for a whole training.
    """

    def __init__(self, memory: int | float | str) -> None:
        self.memory = _checked(memory)
        self._latest: Recomputation | None = None
        self._budgeted: Budgeted | None = None

    def begin(self, module: torch.nn.Module, name: str) -> None:
        """Run a method under `recompute`: one that makes what the backward needs."""
        left = getattr(getattr(module, name), "budget", None)
        if isinstance(left, StepBudget):
            warn(
                f"`{name}` of `{type(module).__name__}` was under a budget already, "
                "from a training that was broken off or from a second callback: the "
                "new budget takes its place."
            )
            left.end()
        self._latest = None
        self._budgeted = Budgeted(module, name, self._call)
        # A later budget finds this one by it.
        vars(self._budgeted.method)["budget"] = self

    def _call(self, plain: Callable[..., Any]) -> Any:
        with recompute(memory=self.memory) as run:
            result = plain()
        self._latest = run
        return result

    @property
    def report(self) -> EagerReport | None:
        """Counts of the latest call that was differentiated; `None` before one."""
        return None if self._latest is None else self._latest.report

    def end(self) -> None:
        """Give the module its own method back, if it has not got it."""
        if self._budgeted is not None:
            self._budgeted.end()
            self._budgeted = None


def _checked(memory: object) -> int | float | str:
    """Refuse what is no budget for every step of a training."""
    if memory == "auto" or not isinstance(memory, int | float | str):
        raise PlanError(
            f"`memory={memory!r}` is not a budget for a whole training: before the "
            "first "
            "step the optimiser has no state yet, so what is left then says little. "
            'Pass bytes or a text such as `memory="12GB"`; '
            "`retape.torch.estimate(model, ...)` says what a model needs."
        )
    # Reads it, so that what is no number of bytes is refused here and not in training.
    recompute(memory=memory)
    return memory

"""A module's method under a budget while it trains, as trainers' callbacks ask."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from retape._warn import warn
from retape.engines.eager._errors import PlanError
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
        self._put_back: Callable[[], None] | None = None

    def begin(self, module: torch.nn.Module, name: str) -> None:
        """Run a method under `recompute`: one that makes what the backward needs."""
        left = getattr(vars(module).get(name), "budget", None)
        if isinstance(left, StepBudget):
            warn(
                f"`{name}` of `{type(module).__name__}` was under a budget already, "
                "from a training that was broken off or from a second callback: the "
                "new budget takes its place."
            )
            left.end()
        before, plain = vars(module).get(name), getattr(module, name)
        self._latest = None

        @functools.wraps(plain)
        def budgeted(*args: Any, **kwargs: Any) -> Any:
            if not (module.training and torch.is_grad_enabled()):
                return plain(*args, **kwargs)
            with recompute(memory=self.memory) as run:
                result = plain(*args, **kwargs)
            self._latest = run
            return result

        def put_back() -> None:
            if before is None:
                vars(module).pop(name, None)
            else:
                setattr(module, name, before)

        # A later budget finds this one by it.
        vars(budgeted)["budget"] = self
        # On the instance: the class, and other modules of it, stay as they are.
        setattr(module, name, budgeted)
        self._put_back = put_back

    @property
    def report(self) -> EagerReport | None:
        """Counts of the latest call that was differentiated; `None` before one."""
        return None if self._latest is None else self._latest.report

    def end(self) -> None:
        """Give the module its own method back, if it has not got it."""
        if self._put_back is not None:
            self._put_back()
            self._put_back = None


def _checked(memory: object) -> int | float | str:
    """Refuse what is no budget for every step of a training."""
    if memory == "auto" or not isinstance(memory, int | float | str):
        raise PlanError(
            f"`memory={memory!r}` is no budget for a whole training: before the first "
            "step the optimiser has no state yet, so what is left then says little. "
            'Pass bytes or a text such as `memory="12GB"`; '
            "`retape.torch.estimate(model, ...)` says what a model needs."
        )
    # Reads it, so that what is no number of bytes is refused here and not in training.
    recompute(memory=memory)
    return memory

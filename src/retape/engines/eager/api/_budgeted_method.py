"""A module's method under a budget while it trains, as trainers' callbacks ask."""

import functools
from typing import Any

import torch

from retape._warn import warn
from retape.engines.eager._errors import PlanError
from retape.engines.eager.api._recompute import Recomputation, recompute
from retape.engines.eager.trace._report import EagerReport


class BudgetedMethod:
    """Runs a method of a module under `recompute` until it is taken off.

    Calls in evaluation mode, or without gradients, are left as they are.

    Args:
        module: The module.
        name: The method that makes what the backward goes back through.
        memory: A budget for each call, in bytes or as text such as `"2GB"`.
    """

    def __init__(
        self, module: torch.nn.Module, name: str, memory: int | float | str
    ) -> None:
        self._module, self._name = module, name
        self._latest: Recomputation | None = None
        left = getattr(vars(module).get(name), "budget", None)
        if isinstance(left, BudgetedMethod):
            warn(
                f"`{name}` of `{type(module).__name__}` was under a budget already, "
                "from a training that was broken off or from a second callback: the "
                "new budget takes its place."
            )
            left.take_off()
        self._before = vars(module).get(name)
        plain = getattr(module, name)

        @functools.wraps(plain)
        def budgeted(*args: Any, **kwargs: Any) -> Any:
            if not (module.training and torch.is_grad_enabled()):
                return plain(*args, **kwargs)
            with recompute(memory=memory) as run:
                result = plain(*args, **kwargs)
            self._latest = run
            return result

        # A later budget finds this one by it.
        vars(budgeted)["budget"] = self
        # On the instance: the class, and other modules of it, stay as they are.
        setattr(module, name, budgeted)

    @property
    def report(self) -> EagerReport | None:
        """Counts of the latest call that was differentiated."""
        return None if self._latest is None else self._latest.report

    def take_off(self) -> None:
        """Give the module its own method back."""
        if self._before is None:
            vars(self._module).pop(self._name, None)
        else:
            setattr(self._module, self._name, self._before)


def step_budget(memory: object) -> int | float | str:
    """A budget for every step of a training.

    Raises:
        PlanError: If it is none: a run of its own has to be asked for what is left.
    """
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

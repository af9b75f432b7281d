"""Put a module's training step under a budget while Lightning's `Trainer` runs it."""

from __future__ import annotations

import lightning

from retape._errors import UnsupportedError
from retape.engines.eager.api._step_budget import StepBudget
from retape.engines.eager.trace._report import EagerReport


class RetapeCallback(lightning.Callback):
    """Train in a byte budget, to the same bits.

    Each `training_step` runs under `retape.torch.recompute(memory=...)`: what it keeps
    for its backward stays within the budget, and what does not fit is recomputed.
    Validation is left as it is. The budget is for activations: parameters, gradients
    and the optimiser come on top.

    Args:
        memory: The budget of one step on one device, in bytes or as text (`"12GB"`).

    Raises:
        PlanError: If `memory` is no number of bytes.
        UnsupportedError: When fitting begins, with manual optimisation.
        BudgetError: In the first step, if the budget is below the least possible, which
            is named.

    Examples:
        >>> import lightning, torch, retape.lightning
        >>> class Deep(lightning.LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         layers = [torch.nn.Linear(64, 64), torch.nn.Tanh()] * 20
        ...         self.layers = torch.nn.Sequential(*layers)
        ...     def training_step(self, batch, index):
        ...         return self.layers(batch).square().mean()
        ...     def configure_optimizers(self):
        ...         return torch.optim.Adam(self.parameters())
        >>> callback = retape.lightning.RetapeCallback(memory="400kB")
        >>> trainer = lightning.Trainer(
        ...     max_steps=2, accelerator="cpu", callbacks=[callback], logger=False,
        ...     enable_checkpointing=False, enable_progress_bar=False,
        ...     enable_model_summary=False)
        >>> trainer.fit(Deep(), torch.utils.data.DataLoader(torch.ones(512, 64), 128))
        >>> callback.report.peak_bytes <= 400_000
        True
    """

    def __init__(self, memory: int | float | str) -> None:
        self._budget = StepBudget(memory)
        self.memory = self._budget.memory

    @property
    def report(self) -> EagerReport | None:
        """Counts of the latest training step; `None` before the first."""
        return self._budget.report

    def on_fit_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        """Called by Lightning: the budget begins."""
        del trainer
        if not pl_module.automatic_optimization:
            raise UnsupportedError(
                f"`{type(pl_module).__name__}` has `automatic_optimization = False`: "
                "its `training_step` goes backwards and updates inside of what a "
                "`RetapeCallback` would record. Write "
                "`with retape.torch.recompute(memory=...):` around the forward in your "
                "`training_step` instead."
            )
        self._budget.begin(pl_module, "training_step")

    def on_fit_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        """Called by Lightning: the module is as it was."""
        del trainer, pl_module
        self._budget.end()

    def on_exception(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        exception: BaseException,
    ) -> None:
        """Called by Lightning, after an error or Ctrl-C: the module is as it was."""
        del trainer, pl_module, exception
        self._budget.end()

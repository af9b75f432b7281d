"""Put a module's training step under a budget while Lightning's `Trainer` runs it."""

from __future__ import annotations

import lightning

from retape._errors import UnsupportedError
from retape.engines.eager.api._budgeted_method import BudgetedMethod, step_budget
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
        self.memory = step_budget(memory)
        self._method: BudgetedMethod | None = None
        self._report: EagerReport | None = None

    @property
    def report(self) -> EagerReport | None:
        """Counts of the latest training step; `None` before the first."""
        return self._report if self._method is None else self._method.report

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
        self._method = BudgetedMethod(pl_module, "training_step", self.memory)

    def on_fit_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        """Called by Lightning: the module is as it was."""
        del trainer, pl_module
        self._take_off()

    def on_exception(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        exception: BaseException,
    ) -> None:
        """Called by Lightning, after an error or Ctrl-C: the module is as it was."""
        del trainer, pl_module, exception
        self._take_off()

    def _take_off(self) -> None:
        if self._method is not None:
            self._report = self._method.report
            self._method.take_off()
            self._method = None

"""Hints of the callbacks that keep a training within a budget."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import warnings
from typing import Any

import torch

import retape
import retape.torch
from tests.hints.rows import rows

with warnings.catch_warnings():
    # What the package says of its own dependencies when it is loaded.
    warnings.simplefilter("ignore")
    import lightning

    import retape.lightning


class Regression(lightning.LightningModule):  # type: ignore[misc, name-defined]
    """A training step of a few operators, with Lightning's backward or its own."""

    def __init__(self, manual: bool = False) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)
        torch.nn.init.ones_(self.layer.weight)
        torch.nn.init.zeros_(self.layer.bias)
        self.automatic_optimization = not manual

    def training_step(self, batch: Any, index: int) -> Any:
        del index
        loss = self.loss(batch)
        if not self.automatic_optimization:
            loss.backward()
            self.optimizers().step()
        return loss

    def loss(self, batch: Any) -> Any:
        return self.layer(batch).sin().square().sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Recomputed(Regression):
    """The same as is told."""

    def loss(self, batch: Any) -> Any:
        with retape.torch.recompute(memory="1MB"):
            return super().loss(batch)


def trained(module: Regression, callback: Any = None) -> Any:
    """The weights after a step."""
    data = torch.linspace(-1, 1, 12).view(4, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            max_steps=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[] if callback is None else [callback],
        )
        trainer.fit(module, torch.utils.data.DataLoader(data, 4))
    return module.layer.weight.detach()


ROWS = rows(
    "trained(Regression())",
    r"""
retape.lightning.RetapeCallback(memory='auto')
says: Pass bytes or a text such as `memory="12GB"`
trained(Regression(), retape.lightning.RetapeCallback(memory='12GB'))

budget = retape.lightning.RetapeCallback(memory='1MB')
trained(Regression(manual=True), budget)
says: Write `with retape.torch.recompute(memory=...):`  as: Recomputed
trained(Recomputed(manual=True))
""",
)

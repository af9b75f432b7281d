"""Lightning's trainer with a budget: the same bits, within the bytes, and put back."""

import warnings
from typing import Any

import pytest
import torch

import retape
import retape.torch

with warnings.catch_warnings():
    # What the package says of its own dependencies when it is loaded.
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning")
    import retape.lightning

pytestmark = [
    # Advice on loading data and on logging, which these runs have no use for.
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*is smaller than the logging interval"),
]

MEMORY = 400_000


class Deep(lightning.LightningModule):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        layers: list[Any] = []
        for _ in range(20):
            layers += [torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Dropout(0.1)]
        self.layers = torch.nn.Sequential(*layers)
        self.broken = False
        self.seen: list[bool] = []

    def training_step(self, batch: Any, index: int) -> Any:
        if self.broken:
            raise ValueError("as asked")
        return self.layers(batch).square().mean()

    def validation_step(self, batch: Any, index: int) -> None:
        self.seen.append(type(self) is not Deep)
        self.log("loss", self.layers(batch).square().mean())

    def configure_optimizers(self) -> Any:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def _fit(module: Deep, callback: Any = None) -> None:
    torch.manual_seed(1)
    data = torch.linspace(-1, 1, 512 * 64).view(512, 64)
    loader = torch.utils.data.DataLoader(data, 128)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            max_steps=4,
            accelerator="cpu",
            callbacks=None if callback is None else [callback],
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(module, loader, loader)


@pytest.mark.slow
def test_the_same_weights_in_a_budget() -> None:
    plain, ours = Deep(), Deep()
    _fit(plain)
    callback = retape.lightning.RetapeCallback(memory=MEMORY)
    _fit(ours, callback)
    for a, b in zip(plain.parameters(), ours.parameters(), strict=True):
        assert torch.equal(a, b)
    assert callback.report is not None
    assert callback.report.recomputed > 0
    assert callback.report.peak_bytes <= MEMORY
    assert any(ours.seen)  # validation ran while the budget was on
    assert type(ours) is Deep


def test_after_an_error_the_module_is_as_it_was() -> None:
    module = Deep()
    module.broken = True
    with pytest.raises(ValueError, match="as asked"):
        _fit(module, retape.lightning.RetapeCallback(memory=MEMORY))
    assert type(module) is Deep


@pytest.mark.slow
def test_a_method_that_was_replaced_before_is_run_and_put_back() -> None:
    module, calls = Deep(), []
    own = module.training_step

    def counted(batch: Any, batch_idx: int) -> Any:
        calls.append(batch_idx)
        return own(batch, batch_idx)

    module.training_step = counted
    _fit(module, retape.lightning.RetapeCallback(memory=MEMORY))
    assert len(calls) == 4
    assert module.training_step is counted

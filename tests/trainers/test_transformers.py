"""Transformers' trainer with a budget: the same bits, in the bytes, and put back."""

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import retape
import retape.torch

pytest.importorskip("accelerate")
transformers = pytest.importorskip("transformers")

import retape.transformers  # noqa: E402

MEMORY = 900_000


def _model() -> Any:
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        n_layer=4, n_embd=32, n_head=2, vocab_size=50, bos_token_id=1, eos_token_id=1
    )
    return transformers.GPT2LMHeadModel(config)


def _trainer(model: Any, folder: Path, callback: Any = None, **options: Any) -> Any:
    tokens = torch.arange(3200).view(100, 32) * 7 % 50
    texts = [{"input_ids": t, "labels": t} for t in tokens]
    arguments = transformers.TrainingArguments(
        output_dir=str(folder),
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        per_device_train_batch_size=4,
        learning_rate=1e-2,
        **{"max_steps": 3, "logging_strategy": "no", "save_strategy": "no", **options},
    )
    return transformers.Trainer(
        model,
        arguments,
        train_dataset=texts,
        eval_dataset=texts[:4],
        callbacks=None if callback is None else [callback],
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gradient_accumulation_steps": 2, "eval_strategy": "steps", "eval_steps": 1},
    ],
    ids=["plain", "accumulation and evaluation"],
)
def test_the_same_weights_in_a_budget(tmp_path: Path, options: Any) -> None:
    plain, ours = _model(), _model()
    _trainer(plain, tmp_path / "plain", **options).train()
    callback = retape.transformers.RetapeCallback(memory=MEMORY)
    assert callback.report is None
    _trainer(ours, tmp_path / "ours", callback, **options).train()
    for (name, a), b in zip(plain.named_parameters(), ours.parameters(), strict=True):
        assert torch.equal(a, b), name
    assert callback.report is not None
    assert callback.report.recomputed > 0
    assert callback.report.peak_bytes <= MEMORY
    assert type(ours) is type(plain)


@pytest.mark.slow
def test_a_budget_that_is_too_small_names_the_least_and_can_be_raised(
    tmp_path: Path,
) -> None:
    model = _model()
    small = retape.transformers.RetapeCallback(memory=1000)
    with pytest.raises(retape.BudgetError) as refused:
        _trainer(model, tmp_path, small).train()
    # After an error the model is as it was, for its own use and for the next training.
    tokens = torch.arange(32)[None]
    model(input_ids=tokens, labels=tokens).loss.backward()
    assert small.report is None and type(model) is transformers.GPT2LMHeadModel
    enough = retape.transformers.RetapeCallback(memory=int(1.2 * refused.value.least))
    _trainer(model, tmp_path, enough).train()
    assert enough.report is not None and enough.report.steps > 0
    assert type(model) is transformers.GPT2LMHeadModel


@pytest.mark.slow
def test_a_second_callback_is_told_of_and_takes_the_place_of_the_first(
    tmp_path: Path,
) -> None:
    model = _model()
    first, second = (retape.transformers.RetapeCallback(memory=MEMORY) for _ in "12")
    trainer = _trainer(model, tmp_path, first)
    trainer.add_callback(second)
    with pytest.warns(retape.RetapeWarning, match="the new budget takes its place"):
        trainer.train()
    assert first.report is None and second.report is not None
    assert type(model) is transformers.GPT2LMHeadModel


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"gradient_checkpointing": True}, retape.PlanError, "whatever the budget"),
        ({"torch_compile": True}, retape.UnsupportedError, "what is compiled is not"),
    ],
)
def test_what_would_have_no_effect_is_refused(
    tmp_path: Path, options: Any, error: Any, text: str
) -> None:
    callback = retape.transformers.RetapeCallback(memory=MEMORY)
    trainer = _trainer(_model(), tmp_path, callback)
    for name, value in options.items():
        setattr(trainer.args, name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(error, match=text):
            trainer.train()


def test_several_devices_in_one_process_are_refused() -> None:
    callback = retape.transformers.RetapeCallback(memory=MEMORY)
    arguments: Any = SimpleNamespace(
        gradient_checkpointing=False, torch_compile=False, n_gpu=2
    )
    with pytest.raises(retape.UnsupportedError, match="copies the model to 2 devices"):
        callback.on_train_begin(arguments, None, None, model=_model())  # type: ignore[arg-type]

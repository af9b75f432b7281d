"""Put a model's forward under a budget while `Trainer` trains it."""

from __future__ import annotations

import sys
from types import CodeType, FrameType
from typing import Any

import torch
from transformers import (
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from retape._errors import PlanError, UnsupportedError
from retape.engines.eager.api._step_budget import StepBudget
from retape.engines.eager.trace._report import EagerReport


class RetapeCallback(TrainerCallback):
    """Train in a byte budget, to the same bits.

    Each training step's forward, loss included if the model computes it, runs under
    `retape.torch.recompute(memory=...)`: what it keeps for its backward stays within
    the budget, and what does not fit is recomputed. Evaluation is left as it is. The
    budget is for activations: parameters, gradients and the optimiser come on top, and
    so does a loss that the trainer computes outside of the model.

    Args:
        memory: The budget of each call of the model on one device, in bytes or as text
            (`"12GB"`). A trainer that calls it twice in a step may take twice as much.

    Raises:
        PlanError: If `memory` is no number of bytes; when training begins, with
            `gradient_checkpointing=True`.
        UnsupportedError: When training begins, with `torch_compile=True`, or with
            several devices in one process.
        BudgetError: In the first step, if the budget is below the least possible, which
            is named.

    Examples:
        >>> import torch, transformers, retape.transformers
        >>> from transformers import GPT2Config, GPT2LMHeadModel, Trainer
        >>> from transformers import TrainingArguments
        >>> config = GPT2Config(n_layer=4, n_embd=32, n_head=2, vocab_size=50)
        >>> tokens = torch.arange(320).view(8, 40) % 50
        >>> texts = [{"input_ids": t, "labels": t} for t in tokens]
        >>> callback = retape.transformers.RetapeCallback(memory="2MB")
        >>> trainer = Trainer(
        ...     GPT2LMHeadModel(config),
        ...     TrainingArguments(max_steps=2, use_cpu=True, disable_tqdm=True,
        ...                       report_to="none", save_strategy="no"),
        ...     train_dataset=texts, callbacks=[callback])
        >>> trainer.remove_callback(transformers.PrinterCallback)
        >>> done = trainer.train()
        >>> callback.report.peak_bytes <= 2_000_000
        True
    """

    def __init__(self, memory: int | float | str) -> None:
        self._budget = StepBudget(memory)
        self.memory = self._budget.memory

    @property
    def report(self) -> EagerReport | None:
        """Counts of the latest training step; `None` before the first."""
        return self._budget.report

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        *,
        model: torch.nn.Module | None = None,
        **kwargs: Any,
    ) -> None:
        """Called by `Trainer`: the budget begins."""
        del state, control, kwargs
        _refuse_what_hides_the_forward(args)
        assert model is not None, "a trainer has a model"
        self._budget.begin(model, "forward", _code_of_training())

    def on_train_end(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        **kwargs: Any,
    ) -> None:
        """Called by `Trainer`: the model is as it was."""
        del args, state, control, kwargs
        self._budget.end()


def _code_of_training() -> CodeType | None:
    """The code of the trainer's loop, which an error ends unsaid, if there is one."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_locals.get("self"), Trainer):
        frame = frame.f_back
    return None if frame is None else frame.f_code


def _refuse_what_hides_the_forward(args: TrainingArguments) -> None:
    if args.gradient_checkpointing:
        raise PlanError(
            "`gradient_checkpointing=True` and a `RetapeCallback`: every layer would "
            "be recomputed on its own whatever the budget. Leave one of them out."
        )
    if args.torch_compile:
        raise UnsupportedError(
            "`torch_compile=True` and a `RetapeCallback`: what is compiled is not "
            "recorded. Leave `torch_compile` out, or give the compiler a budget of its "
            "own (see the page on PyTorch)."
        )
    if args.n_gpu > 1:
        raise UnsupportedError(
            f"`Trainer` copies the model to {args.n_gpu} devices of one process at "
            "each step, and a budget would be on the first copy only. Start one "
            "process for each device (`torchrun`)."
        )

"""`advise`: whether a gradient fits, and the cheapest way to make it fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from retape._bytes import parse_bytes
from retape._errors import BudgetError, PlanError, UnsupportedError
from retape.engines.jaxpr.jaxprs._target import Target
from retape.engines.jaxpr.layers.planner._candidates import (
    LayerCandidate,
    Question,
    asked,
)
from retape.engines.jaxpr.layers.planner._plan import LayerPlan, cheapest, nothing_fits
from retape.engines.jaxpr.layers.strategies._cutting import StepMachine
from retape.engines.jaxpr.xla._described_devices import for_device
from retape.plan._constructors import logarithmic, within


def advise(
    fun: Callable[..., Any],
    *args: Any,
    memory: int | str | None = None,
    device: str | None = None,
    argnums: int | Sequence[int] = 0,
    has_aux: bool = False,
    step: Callable[..., Any] | None = None,
    donate_argnums: int | Sequence[int] = (),
    **kwargs: Any,
) -> LayerPlan:
    """Whether Retape pays for a gradient, and the cheapest way to make it fit.

    Every way is compiled for the arguments' types, and none is run. Where the plain
    gradient fits, the advice is to do nothing. Of a function with a `while_loop` there
    is no plain gradient to compare with: then the plan for the budget is looked for.

    Args:
        fun: A function that returns a scalar.
        *args: Its arguments, or `jax.ShapeDtypeStruct`s of them. Where they are spread
            over devices, or say so by `sharding=`, the memory is that of each device.
        memory: Bytes of the device, or a text such as "24 GiB": arguments, gradients
            and temporaries share it. By default three quarters of the memory of
            `device`, which is what JAX takes of a GPU; all that a TPU has for programs.
        device: A device that need not be here: "h100", "h200", "a100", "l4" or "v5e", a
            TPU. What its own compiler says is in the table; of a GPU, too, how many
            kernels are launched.
        argnums: By which arguments the gradient is taken.
        has_aux: Whether `fun` returns a pair of the scalar and something else.
        step: What must fit, if that is more than the gradient: `step(fun, *args)` takes
            gradients of the function that it is given, sums and uses them. Then `args`
            are the step's, and `argnums` only says by what it takes gradients.
        donate_argnums: Which of `args` give their place to results, as in `jax.jit`.
        **kwargs: Keyword arguments for `fun`, or for `step`.

    Returns:
        A table of candidates, and the one to use: `found.apply(fun)` is the function to
        differentiate, as is `retape.jax.checkpoint(fun, policy=found.policy)`; where
        "binomial" was chosen, `retape.jax.grad(fun, plan=found)` does it, too.
        `print(found)` shows the table.

    Raises:
        BudgetError: If nothing fits; the least that would is named.
        UnsupportedError: If the platform's compiler does not tell what is taken, or a
            whole step has a loop that plain reverse mode cannot go back through.
        PlanError: If `memory` is no amount of bytes, neither it nor a device that is
            described was passed, `donate_argnums` names arguments that there are not,
            or `step` does not call what it is given.
        MissingPackageError: If the compiler for `device` is not there.
        GradientTypeError: If `fun` does not return a scalar.

    Examples:
        >>> import jax, jax.numpy as jnp, retape.jax
        >>> def settle(x):
        ...     return jax.lax.while_loop(
        ...         lambda v: jnp.sum(v) > 1.0, lambda v: v * 0.99, x).sum()
        >>> found = retape.jax.advise(settle, jnp.ones(1000), memory="200 kB")
        >>> found.fits, found.chosen.name, found.chosen.peak_bytes <= 200_000
        (False, 'binomial', True)
        >>> retape.jax.advise(lambda x: jnp.sum(x**2), 3.0, memory="1 MB").fits
        True
    """
    if not callable(fun):
        raise UnsupportedError(
            f"`advise({fun!r}, ...)`: this cannot be called, so it has no gradient. "
            "Pass the loss, then its arguments, or types of them."
        )
    with for_device(device) as described:
        room = _room(memory, described)
        budget = parse_bytes(room, "memory")
        question = asked(
            fun, args, kwargs, argnums,
            has_aux=has_aux, step=step, donate_argnums=donate_argnums,
        )  # fmt: skip
        try:
            found = cheapest(question, budget, room)
        except UnsupportedError as error:
            # Raised from JAX's own refusal of a `while_loop`, and from nothing else.
            if error.__cause__ is None or step is not None:
                raise
            found = _of_unknown_length(question, budget, room)
    return found if described is None else replace(found, device=described.title)


def _room(memory: int | str | None, described: Target | None) -> int | str:
    if memory is not None:
        return memory
    if described is None:
        raise PlanError(
            "neither `memory` nor `device` was passed. Pass the bytes that the "
            'gradient may take, as in `memory="24 GiB"`, or `device="h100"`.'
        )
    return described.room


def _of_unknown_length(question: Question, budget: int, memory: int | str) -> LayerPlan:
    """The plan that uses the budget, beside the one that uses the least."""
    least = _candidate(question, "logarithmic", StepMachine(logarithmic()))
    rest = budget - (least.peak_bytes - least.temp_bytes)
    found = [least]
    refused: list[tuple[str, str]] = []
    try:
        # A tenth is for what is not the loop.
        wanted = StepMachine(within(max(1, rest * 9 // 10)))
        found.append(_candidate(question, "binomial", wanted))
    except BudgetError as error:
        refused.append(("binomial", str(error).split(". ")[0]))
    fitting = [c for c in found if c.peak_bytes <= budget]
    if not fitting:
        raise nothing_fits(memory, found)
    # The budget is there to be used: more snapshots, fewer steps run again.
    return LayerPlan(budget, tuple(found), fitting[-1], tuple(refused))


def _candidate(question: Question, name: str, policy: StepMachine) -> LayerCandidate:
    nothing = LayerCandidate("", policy, 0, 0, 0.0)
    unknown = replace(nothing, temp_bytes=-1)
    found = question.candidate(name, policy, unknown, extra=float("nan"))
    return replace(found, note="  (as many steps as the data need)")

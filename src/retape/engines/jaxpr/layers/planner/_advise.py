"""`advise`: whether a gradient fits, and the cheapest way to make it fit.

Here is what is tried and what is chosen; `layers/planner/_candidates` finds what each
way takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from retape._bytes import format_bytes, parse_bytes
from retape._errors import BudgetError, PlanError, UnsupportedError
from retape.engines.jaxpr.jaxprs._target import Target
from retape.engines.jaxpr.layers.face._checkpoint import checkpoint
from retape.engines.jaxpr.layers.loops._cut_loop import Loops
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.planner._candidates import (
    LayerCandidate,
    Question,
    asked,
)
from retape.engines.jaxpr.layers.remat._policy import Strategy, saves_products
from retape.engines.jaxpr.layers.strategies._cutting import (
    AsItIs,
    Selective,
    Sqrt,
    StepMachine,
)
from retape.engines.jaxpr.layers.strategies._within_budget import Within
from retape.engines.jaxpr.xla._described_devices import for_device
from retape.plan._base import Plan
from retape.plan._constructors import logarithmic, within


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """What `retape.jax.advise` found; `str` of it is a table.

    Attributes:
        memory: The bytes that were given.
        candidates: All that was looked at; the first is the function as it is.
        chosen: The one of least extra work that fits.
        refused: Name and reason of each way that cannot be gone with this function.
        device: The device that was described, by its maker's name.
    """

    memory: int
    candidates: tuple[LayerCandidate, ...]
    chosen: LayerCandidate
    refused: tuple[tuple[str, str], ...] = ()
    device: str | None = None

    @property
    def policy(self) -> Strategy:
        """What to pass on: `retape.jax.checkpoint(f, policy=plan.policy)`."""
        return self.chosen.policy

    @property
    def fits(self) -> bool:
        """Whether the function fits as it is."""
        return isinstance(self.chosen.policy, AsItIs)

    @property
    def points(self) -> list[tuple[str, int, float]]:
        """Name, peak bytes and extra work of each candidate, for a plot."""
        return [(c.name, c.peak_bytes, c.extra) for c in self.candidates]

    def as_plan(self) -> Plan:
        """The chosen way as a plan, for `retape.jax.grad(f, plan=...)`.

        Raises:
            PlanError: If what was chosen is no plan; the message says what to call.
        """
        way = self.chosen.policy
        if self.fits:
            what, call = "the function fits as it is", "`jax.grad(f)`"
        elif isinstance(way, StepMachine):
            return way.plan
        else:
            what = f"{self.chosen.name!r}, which was chosen, is not a plan"
            call = "`jax.grad(found.apply(f))`"
        raise PlanError(
            f"`plan=` was given what `retape.jax.advise` found, and {what}. Call "
            f"{call} with it, or pass a plan such as `retape.within(...)`."
        )

    def apply(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """The function, reversed in the chosen way; itself if it fits as it is."""
        return fun if self.fits else checkpoint(fun, policy=self.policy)

    def __str__(self) -> str:
        names = [c.name for c in self.candidates] + [name for name, _ in self.refused]
        width = max(map(len, names))
        counted = any(c.kernels is not None for c in self.candidates)
        head = "    kernels  waits" if counted else ""
        lines = [f"{'':{width}}        peak   extra compute{head}"]
        for c in self.candidates:
            mark = " <- chosen" if c is self.chosen else ""
            over = "" if c.peak_bytes <= self.memory else " (too much)"
            told = "" if c.kernels is None else f"   {c.kernels:>10}  {c.waits:>5}"
            lines.append(
                f"{c.name:{width}}  {format_bytes(c.peak_bytes):>10}   "
                f"{_percent(c.extra)}{told}{over}{mark}{c.note}"
            )
        lines += [f"{name:{width}}  not possible: {why}" for name, why in self.refused]
        return "\n".join([*lines, self._advice()])

    def _advice(self) -> str:
        if self.device is not None:
            return f"Compiled for one {self.device}, and not run. {self._verdict()}"
        return self._verdict()

    def _verdict(self) -> str:
        if not self.fits:
            return f"{self.chosen.name} keeps to {format_bytes(self.memory)}."
        others = [c.extra for c in self.candidates[1:] if c.extra > 0.005]
        most = f"up to {100 * max(others):.0f}% more" if others else "more"
        return (
            f"It fits as it is: do nothing. You would pay {most} compute for memory "
            "that you do not need."
        )


def _percent(extra: float) -> str:
    return f"{'unknown':>10}" if extra != extra else f"{100 * extra:8.0f} %"


def cheapest(question: Question, budget: int, memory: int | str) -> LayerPlan:
    """The way of least extra work that fits, of a function that JAX can differentiate.

    Args:
        question: The function.
        budget: Bytes.
        memory: These as they were passed.

    Raises:
        BudgetError: If nothing fits; the least that would is named.
        UnsupportedError: If the function has a loop that plain reverse mode cannot go
            back through.
    """
    looped = question.graph().is_mostly_loops
    plain = question.as_it_is()
    rest = max(1, budget - (plain.peak_bytes - plain.temp_bytes))
    found, refused = question.try_all(_candidates(looped, rest), plain)
    found = [_within_reach(question, c, plain, budget) for c in found]
    if min(c.peak_bytes for c in (plain, *found)) > budget:
        # What costs more than anybody wants, but may be the only way.
        more = question.try_all(_last_resorts(question, looped), plain)
        found, refused = [*found, *more[0]], [*refused, *more[1]]
    found = [plain, *found]
    fitting = [c for c in found if c.peak_bytes <= budget]
    if not fitting:
        raise nothing_fits(memory, found)
    chosen = min(fitting, key=lambda c: (c.extra, c.peak_bytes))
    chosen = plain if plain in fitting else chosen
    return LayerPlan(budget, tuple(found), chosen, tuple(refused))


def _within_reach(
    question: Question, found: LayerCandidate, plain: LayerCandidate, budget: int
) -> LayerCandidate:
    """A candidate with a budget of its own, which is less where the whole is too much.

    A step of training has temporaries beside those of its gradient.
    """
    over = found.peak_bytes - budget
    way = _with_less(found.policy, over) if over > 0 else None
    if way is None:
        return found
    again, _ = question.try_all([(found.name, way)], plain)
    return min([found, *again], key=lambda c: c.peak_bytes)


def _with_less(policy: Strategy, over: int) -> Strategy | None:
    if isinstance(policy, Within) and policy.budget > over:
        return Within(policy.budget - over)
    if isinstance(policy, StepMachine) and (policy.plan.budget or 0) > over:
        return _in_budget(policy.plan.limit - over)
    return None


def nothing_fits(memory: int | str, found: Sequence[LayerCandidate]) -> BudgetError:
    """The error that names the least that would do."""
    least = min(found, key=lambda c: c.peak_bytes)
    return BudgetError(
        f"`memory={memory!r}` does not suffice: the gradient takes "
        f"{format_bytes(found[0].peak_bytes)} as it is, and the least of all ways is "
        f"{least.peak_bytes} bytes ({format_bytes(least.peak_bytes)}), by "
        f"{least.name}. Pass at least that, or make the arguments smaller.",
        least.peak_bytes,
    )


def _candidates(looped: bool, rest: int) -> list[tuple[str, Strategy]]:
    """Ways to try beside the function as it is.

    Args:
        looped: Whether loops do most of the work.
        rest: Bytes that arguments and results leave.
    """
    if not looped:
        return [
            ("selective", Selective()),
            ("segments", Sqrt()),
            ("within", Within(rest)),
        ]
    ways: list[tuple[str, Strategy]] = [
        ("selective", Loops(LoopOptions(levels=1, policy=saves_products))),
        ("every step", Loops(LoopOptions(levels=1))),
    ]
    for levels in (2, 3):
        ways.append((f"segments, {levels} levels", Loops(LoopOptions(levels=levels))))
    return [
        *ways,
        # A tenth is for what is not the loop.
        ("binomial", _in_budget(max(1, rest * 9 // 10))),
        ("offload", Loops(LoopOptions(levels=1, offload="host"))),
    ]


def _last_resorts(question: Question, looped: bool) -> list[tuple[str, Strategy]]:
    if not looped:
        return [("all run again", Within(question.least_budget(Within)))]
    return [
        ("segments, 5 levels", Loops(LoopOptions(levels=5))),
        ("one snapshot", _in_budget(question.least_budget(_in_budget))),
    ]


def _in_budget(budget: int) -> StepMachine:
    return StepMachine(within(budget))


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

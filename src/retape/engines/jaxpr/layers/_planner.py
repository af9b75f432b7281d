"""`plan`: does it fit as it is, and if not, what is the cheapest way to make it fit?

Every candidate is compiled for the arguments' types and the compiler asked what it
takes; nothing is run and nothing allocated. The extra work is counted from the program.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax

from ...._bytes import format_bytes, parse_bytes
from ...._errors import (
    BudgetError,
    GradientTypeError,
    RetapeError,
    UnsupportedError,
)
from ...._plans import fixed_space, within
from .._explain import explain
from ._checkpoint import checkpoint
from ._cost import flops
from ._graph import Graph, graph_of
from ._measured import footprint
from ._options import LoopOptions
from ._strategies import Sqrt, Strategy
from ._whole import AsItIs, Loops, Selective, StepMachine, has_loops
from ._within import Least, Within
from .policies import selective


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to take a gradient.

    Attributes:
        name: What it is called in the table.
        policy: What to pass to `retape.jax.checkpoint(f, policy=...)`.
        peak_bytes: Arguments, results and temporaries of value and gradient.
        temp_bytes: The temporaries alone.
        extra: Work done once more, as a fraction of what a plain gradient does.
        note: A remark, or nothing.
    """

    name: str
    policy: Strategy
    peak_bytes: int
    temp_bytes: int
    extra: float
    note: str = ""


@dataclass(frozen=True, slots=True)
class LayerPlan:
    """What `retape.jax.plan` found; `str` of it is a table.

    Attributes:
        memory: The bytes that were given.
        candidates: All that was looked at; the first is the function as it is.
        chosen: The one of least extra work that fits.
        refused: Name and reason of each way that cannot be gone with this function.
    """

    memory: int
    candidates: tuple[Candidate, ...]
    chosen: Candidate
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def policy(self) -> Strategy:
        """What to pass on: `retape.jax.checkpoint(f, policy=plan.policy)`."""
        return self.chosen.policy

    @property
    def fits(self) -> bool:
        """Whether the function fits as it is."""
        return self.chosen is self.candidates[0]

    @property
    def points(self) -> list[tuple[str, int, float]]:
        """Name, peak bytes and extra work of each candidate, for a plot."""
        return [(c.name, c.peak_bytes, c.extra) for c in self.candidates]

    def apply(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """The function, reversed in the chosen way; itself if it fits as it is."""
        return fun if self.fits else checkpoint(fun, policy=self.policy)

    def __str__(self) -> str:
        names = [c.name for c in self.candidates] + [name for name, _ in self.refused]
        width = max(map(len, names))
        lines = [f"{'':{width}}        peak   extra compute"]
        for c in self.candidates:
            mark = " <- chosen" if c is self.chosen else ""
            over = "" if c.peak_bytes <= self.memory else " (too much)"
            lines.append(
                f"{c.name:{width}}  {format_bytes(c.peak_bytes):>10}   "
                f"{100 * c.extra:8.0f} %{over}{mark}{c.note}"
            )
        lines += [f"{name:{width}}  not possible: {why}" for name, why in self.refused]
        return "\n".join([*lines, self._advice()])

    def _advice(self) -> str:
        if not self.fits:
            return f"{self.chosen.name} keeps to {format_bytes(self.memory)}."
        others = [c.extra for c in self.candidates[1:] if c.extra > 0]
        most = f"up to {100 * max(others):.0f}% more" if others else "more"
        return (
            f"It fits as it is: do nothing. You would pay {most} compute for memory "
            "that you do not need."
        )


def plan(
    fun: Callable[..., Any],
    *args: Any,
    memory: int | str,
    argnums: int | Sequence[int] = 0,
    **kwargs: Any,
) -> LayerPlan:
    """Whether a gradient fits into some memory, and the cheapest way to make it fit.

    Args:
        fun: A function that returns a scalar.
        *args: Its arguments, or `jax.ShapeDtypeStruct`s of them.
        memory: Bytes of the device, or a text such as "24 GiB": arguments, gradients
            and temporaries share it.
        argnums: By which arguments the gradient is taken.
        **kwargs: Keyword arguments for `fun`.

    Returns:
        A table of candidates, and the one to use: `retape.jax.checkpoint(fun,
        policy=found.policy)`, or `found.apply(fun)`.

    Raises:
        BudgetError: If nothing fits; the least that would is named.
        UnsupportedError: If the platform's compiler does not tell what is taken, or
            the function has a loop that plain reverse mode cannot go back through.
        GradientTypeError: If `fun` does not return a scalar.

    Example:
        >>> import jax, jax.numpy as jnp, retape.jax
        >>> def loss(w):
        ...     layer = lambda h, _: (jnp.tanh(h @ w), None)
        ...     return jax.lax.scan(layer, jnp.ones((64, 8)), length=100)[0].sum()
        >>> found = retape.jax.plan(loss, jnp.ones((8, 8)), memory="1 GiB")
        >>> found.fits
        True
        >>> retape.jax.plan(loss, jnp.ones((8, 8)), memory="100 kB").chosen.name
        'segments, 2 levels'
    """
    budget = parse_bytes(memory, "memory")
    if not callable(fun):
        raise UnsupportedError(
            f"`plan({fun!r}, ...)`: what cannot be called has no gradient. Pass the "
            "loss, then its arguments, or types of them."
        )
    question = _Question(fun, jax.tree.map(_struct, args), kwargs, argnums)
    looped = has_loops(question.graph())
    plain = question.as_it_is()
    rest = max(1, budget - (plain.peak_bytes - plain.temp_bytes))
    found, refused = question.try_all(_candidates(looped, budget, rest), plain)
    if min(c.peak_bytes for c in (plain, *found)) > budget:
        # What costs more than anybody wants, but may be the only way.
        more = question.try_all(_last_resorts(looped), plain)
        found, refused = [*found, *more[0]], [*refused, *more[1]]
    found = [plain, *found]
    fitting = [c for c in found if c.peak_bytes <= budget]
    if not fitting:
        raise _nothing_fits(memory, found)
    chosen = min(fitting, key=lambda c: (c.extra, c.peak_bytes))
    chosen = plain if plain in fitting else chosen
    return LayerPlan(budget, tuple(found), chosen, tuple(refused))


def _nothing_fits(memory: int | str, found: Sequence[Candidate]) -> BudgetError:
    least = min(found, key=lambda c: c.peak_bytes)
    return BudgetError(
        f"`memory={memory!r}` does not suffice: the gradient takes "
        f"{format_bytes(found[0].peak_bytes)} as it is, and the least of all ways is "
        f"{least.peak_bytes} bytes ({format_bytes(least.peak_bytes)}), by "
        f"{least.name}. Pass at least that, or make the arguments smaller."
    )


def _candidates(looped: bool, budget: int, rest: int) -> list[tuple[str, Strategy]]:
    """Ways to try beside the function as it is.

    Args:
        looped: Whether loops do most of the work.
        budget: Bytes in all.
        rest: Bytes of it that arguments and results leave.
    """
    if not looped:
        return [
            ("selective", Selective()),
            ("segments", Sqrt()),
            ("within", Within(rest)),
        ]
    ways: list[tuple[str, Strategy]] = [
        ("selective", Loops(LoopOptions(levels=1, policy=selective()))),
        ("every step", Loops(LoopOptions(levels=1))),
    ]
    for levels in (2, 3):
        ways.append((f"segments, {levels} levels", Loops(LoopOptions(levels=levels))))
    return [
        *ways,
        ("binomial", StepMachine(within(max(1, budget // 2)))),
        ("offload", Loops(LoopOptions(levels=1, offload="host"))),
    ]


def _last_resorts(looped: bool) -> list[tuple[str, Strategy]]:
    if not looped:
        return [("all run again", Least())]
    return [
        ("segments, 5 levels", Loops(LoopOptions(levels=5))),
        ("one snapshot", StepMachine(fixed_space(snapshots=1, stage=1))),
    ]


def _first_sentence(error: Exception) -> str:
    return str(error).split(". ")[0].rstrip(".")


@dataclass(frozen=True, slots=True)
class _Question:
    """A function, the types of its arguments, and what its gradient is by."""

    fun: Callable[..., Any]
    structs: tuple[Any, ...]
    kwargs: dict[str, Any]
    argnums: int | Sequence[int]

    def graph(self) -> Graph:
        """The program of the value, which has to be a scalar."""
        closed, shape = jax.make_jaxpr(
            lambda *a: self.fun(*a, **self.kwargs), return_shape=True
        )(*self.structs)
        shapes = [leaf.shape for leaf in jax.tree.leaves(shape)]
        if shapes != [()]:
            raise GradientTypeError(
                "`plan` is about gradients of a scalar, and the function returns "
                f"{jax.tree.map(lambda s: s.shape, shape)}. Return the loss alone."
            )
        return graph_of(closed)[0]

    def as_it_is(self) -> Candidate:
        """The function as it is, which everything else is compared with."""
        try:
            return self.candidate("as it is", AsItIs())
        except ValueError as error:
            if "Reverse-mode differentiation" not in str(error):
                raise
            raise UnsupportedError(
                "the function has a `while_loop` whose number of trips is not known "
                "while tracing: there is no gradient of it as it is to compare with, "
                "and the extra work cannot be counted. Take the gradient by "
                "`retape.jax.grad(f, plan=retape.within(...))`, or write the loop as "
                "`retape.jax.while_loop` to go on using `jax.grad`."
            ) from error

    def try_all(
        self, ways: Sequence[tuple[str, Strategy]], plain: Candidate
    ) -> tuple[list[Candidate], list[tuple[str, str]]]:
        """The ways that can be gone, and those that cannot with the reason."""
        found: list[Candidate] = []
        refused: list[tuple[str, str]] = []
        for name, policy in ways:
            try:
                found.append(self.candidate(name, policy, plain))
            except RetapeError as error:
                refused.append((name, _first_sentence(error)))
        return found, refused

    def candidate(
        self, name: str, policy: Strategy, plain: Candidate | None = None
    ) -> Candidate:
        """One way: what it takes, and what it costs."""
        marked = self.fun if plain is None else checkpoint(self.fun, policy=policy)
        taken = footprint(self.gradient(marked), *self.structs)
        same = plain is not None and taken.temp == plain.temp_bytes
        note = "  (no gain here)" if same else ""
        extra = 0.0 if plain is None else self.extra(marked, policy)
        return Candidate(name, policy, taken.total, taken.temp, extra, note)

    def gradient(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        return jax.value_and_grad(lambda *a: fun(*a, **self.kwargs), self.argnums)

    def work(self, fun: Callable[..., Any]) -> int:
        """Floating-point operations of a function, about."""
        closed = jax.make_jaxpr(fun)(*self.structs)
        return sum(map(flops, closed.jaxpr.eqns))

    def extra(self, marked: Callable[..., Any], policy: Strategy) -> float:
        """Work that is done once more, as a fraction of a plain gradient's."""
        base = self.work(self.gradient(self.fun))
        if not isinstance(policy, StepMachine):
            return max(0.0, self.work(self.gradient(marked)) / base - 1)
        # A sweep's loops have no fixed numbers of trips; its schedule's are exact.
        numbers = self.argnums
        numbers = numbers if isinstance(numbers, int) else tuple(numbers)
        told = explain(
            self.fun, *self.structs, plan=policy.plan, argnums=numbers, **self.kwargs
        )
        if told.prediction is None or told.steps is None:
            return 1.0
        once = self.work(lambda *a: self.fun(*a, **self.kwargs))
        return told.prediction.advances / max(1, told.steps) * once / base


def _struct(leaf: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    aval = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)

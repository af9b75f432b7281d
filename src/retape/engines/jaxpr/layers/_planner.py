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
from ...._errors import BudgetError, GradientTypeError, RetapeError
from ...._plans import within
from .._explain import Explanation, explain
from ._checkpoint import checkpoint
from ._cost import flops
from ._graph import Graph, graph_of
from ._measured import Footprint, footprint
from ._options import LoopOptions
from ._strategies import Sqrt, Strategy, Within
from ._whole import AsItIs, Loops, Selective, StepMachine, has_loops
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
    """

    memory: int
    candidates: tuple[Candidate, ...]
    chosen: Candidate

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
        """The function, reversed in the chosen way."""
        return checkpoint(fun, policy=self.policy)

    def __str__(self) -> str:
        width = max(len(c.name) for c in self.candidates)
        lines = [f"{'':{width}}        peak   extra compute"]
        for c in self.candidates:
            mark = " <- chosen" if c is self.chosen else ""
            over = "" if c.peak_bytes <= self.memory else " (too much)"
            lines.append(
                f"{c.name:{width}}  {format_bytes(c.peak_bytes):>10}   "
                f"{100 * c.extra:8.0f} %{over}{mark}{c.note}"
            )
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
    budget = parse_bytes(memory)
    structs = jax.tree.map(_struct, args)
    graph = _graph(fun, structs, kwargs)
    base = _work(fun, structs, kwargs, argnums)
    found: list[Candidate] = []
    for name, policy in _candidates(graph, budget):
        note = ""
        marked = checkpoint(fun, policy=policy)
        try:
            taken = _taken(marked, structs, kwargs, argnums)
            extra = _extra(fun, marked, policy, structs, kwargs, argnums, base)
        except RetapeError as error:
            if not found:
                raise
            del error  # this way cannot be gone with this program
            continue
        if taken.temp == (found[0].temp_bytes if found else -1):
            note = "  (no gain here)"
        found.append(Candidate(name, policy, taken.total, taken.temp, extra, note))
    fitting = [c for c in found if c.peak_bytes <= budget]
    if not fitting:
        least = min(found, key=lambda c: c.peak_bytes)
        raise BudgetError(
            f"`memory={memory!r}` does not suffice: the gradient takes "
            f"{format_bytes(found[0].peak_bytes)} as it is, and the least of the ways "
            f"that were tried is {least.peak_bytes} bytes "
            f"({format_bytes(least.peak_bytes)}), by {least.name}. Pass at least "
            "that, or make the arguments smaller."
        )
    chosen = min(fitting, key=lambda c: (c.extra, c.peak_bytes))
    if found[0] in fitting:
        chosen = found[0]
    return LayerPlan(budget, tuple(found), chosen)


def _candidates(graph: Graph, budget: int) -> list[tuple[str, Strategy]]:
    binomial = ("binomial", StepMachine(within(max(1, budget // 2))))
    if not has_loops(graph):
        return [
            ("as it is", AsItIs()),
            ("selective", Selective()),
            ("segments", Sqrt()),
            ("within half", Within(max(1, budget // 2))),
        ]
    ways: list[tuple[str, Strategy]] = [("as it is", AsItIs())]
    ways.append(("selective", Loops(LoopOptions(levels=1, policy=selective()))))
    ways.append(("every step", Loops(LoopOptions(levels=1))))
    for levels in (2, 3):
        ways.append((f"segments, {levels} levels", Loops(LoopOptions(levels=levels))))
    ways.append(binomial)
    return [*ways, ("offload", Loops(LoopOptions(levels=1, offload="host")))]


def _graph(fun: Callable[..., Any], structs: Any, kwargs: dict[str, Any]) -> Graph:
    closed, shape = jax.make_jaxpr(lambda *a: fun(*a, **kwargs), return_shape=True)(
        *structs
    )
    if len(jax.tree.leaves(shape)) != 1 or jax.tree.leaves(shape)[0].shape:
        raise GradientTypeError(
            "`plan` is about gradients of a scalar, and the function returns "
            f"{jax.tree.map(lambda s: s.shape, shape)}. Return the loss alone."
        )
    return graph_of(closed)[0]


def _gradient(fun: Any, kwargs: dict[str, Any], argnums: Any) -> Callable[..., Any]:
    return jax.value_and_grad(lambda *a: fun(*a, **kwargs), argnums)


def _taken(fun: Any, structs: Any, kwargs: Any, argnums: Any) -> Footprint:
    return footprint(_gradient(fun, kwargs, argnums), *structs)


def _work(fun: Any, structs: Any, kwargs: Any, argnums: Any) -> int:
    closed = jax.make_jaxpr(_gradient(fun, kwargs, argnums))(*structs)
    return sum(map(flops, closed.jaxpr.eqns))


def _extra(
    fun: Any,
    marked: Any,
    policy: Strategy,
    structs: Any,
    kwargs: Any,
    argnums: Any,
    base: int,
) -> float:
    if not isinstance(policy, StepMachine):
        return max(0.0, _work(marked, structs, kwargs, argnums) / base - 1)
    # A sweep's loops have no fixed numbers of trips; its schedule has exact counts.
    numbers = argnums if isinstance(argnums, int) else tuple(argnums)
    said: list[Explanation] = []

    def ask(*arrays: Any) -> None:
        said.append(explain(fun, *arrays, plan=policy.plan, argnums=numbers, **kwargs))

    jax.eval_shape(ask, *structs)
    told = said[0]
    if told.prediction is None or told.steps is None:
        return 1.0
    forward = jax.make_jaxpr(lambda *a: fun(*a, **kwargs))(*structs)
    once = sum(map(flops, forward.jaxpr.eqns))
    return told.prediction.advances / max(1, told.steps) * once / base


def _struct(leaf: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    aval = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(aval.shape, aval.dtype, weak_type=aval.weak_type)

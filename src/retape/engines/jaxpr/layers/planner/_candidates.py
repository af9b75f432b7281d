"""One question of the planner: a function, its arguments' types, and ways to go.

Every way is compiled for the types and the compiler asked what it takes; nothing is run
and nothing allocated. The extra work is counted from the program.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
from jax.core import Tracer

from retape._errors import (
    BudgetError,
    GradientTypeError,
    PlanError,
    RetapeError,
    UnsupportedError,
)
from retape.engines.jaxpr.analysis._flops import flops
from retape.engines.jaxpr.api.inspect._explain import explain
from retape.engines.jaxpr.intake._hijax import as_classic
from retape.engines.jaxpr.jaxprs._avals import struct
from retape.engines.jaxpr.jaxprs._jax_internals import classic_rules
from retape.engines.jaxpr.layers.face._checkpoint import checkpoint
from retape.engines.jaxpr.layers.remat._flat_program import Graph, graph_of
from retape.engines.jaxpr.layers.remat._policy import Strategy
from retape.engines.jaxpr.layers.strategies._compiled_footprint import (
    MemoryReport,
    footprint,
)
from retape.engines.jaxpr.layers.strategies._cutting import AsItIs, StepMachine


@dataclass(frozen=True, slots=True)
class LayerCandidate:
    """One way to take a gradient.

    Attributes:
        name: What it is called in the table.
        policy: What to pass to `retape.jax.checkpoint(f, policy=...)`.
        peak_bytes: Arguments, results and temporaries of value and gradient.
        temp_bytes: The temporaries alone.
        extra: Work done once more, as a fraction of what a plain gradient does.
        note: A remark, or nothing.
        kernels: What is launched on the device that was described; a loop of unknown
            length counts with one turn. `None` without a description.
        waits: Its loops of unknown length and conditionals, where the host waits.
    """

    name: str
    policy: Strategy
    peak_bytes: int
    temp_bytes: int
    extra: float
    note: str = ""
    kernels: int | None = None
    waits: int | None = None


def _first_sentence(error: Exception) -> str:
    return str(error).split(". ")[0].rstrip(".")


@dataclass(frozen=True, slots=True)
class TrainingStep:
    """What must fit: a step of training, or value and gradient alone.

    Attributes:
        run: Takes the function, marked in some way, and then the arguments.
        structs: Their types.
        kwargs: Those that are passed by name.
        donated: Which of them give their place to results.
    """

    run: Callable[..., Any]
    structs: tuple[Any, ...]
    kwargs: dict[str, Any]
    donated: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Question:
    """A function, the types of its arguments, and what its gradient is by."""

    fun: Callable[..., Any]
    structs: tuple[Any, ...]
    kwargs: dict[str, Any]
    argnums: int | Sequence[int]
    has_aux: bool
    step: TrainingStep

    def value(self, *args: Any, **kwargs: Any) -> Any:
        """The function without what it returns beside its value."""
        out = self.fun(*args, **kwargs)
        return out[0] if self.has_aux else out

    def graph(self) -> Graph:
        """The program of the value, which has to be a scalar."""
        with classic_rules():
            closed, shape = jax.make_jaxpr(
                lambda *a: self.value(*a, **self.kwargs), return_shape=True
            )(*self.structs)
        shapes = [leaf.shape for leaf in jax.tree.leaves(shape)]
        if shapes != [()]:
            raise GradientTypeError(
                "`advise` is about gradients of a scalar, and the function returns "
                f"{jax.tree.map(lambda s: s.shape, shape)}. Return the loss alone, or "
                "pass `has_aux=True` for a pair of the loss and the rest; a whole step "
                "of training is passed as `step=`, and the loss as the function."
            )
        return graph_of(as_classic(closed))[0]

    def as_it_is(self) -> LayerCandidate:
        """The function as it is, which everything else is compared with."""
        with loops_refused():
            return self.candidate("as it is", AsItIs())

    def try_all(
        self, ways: Sequence[tuple[str, Strategy]], plain: LayerCandidate
    ) -> tuple[list[LayerCandidate], list[tuple[str, str]]]:
        """The ways that can be gone, and those that cannot with the reason."""
        found: list[LayerCandidate] = []
        refused: list[tuple[str, str]] = []
        for name, policy in ways:
            try:
                found.append(self.candidate(name, policy, plain))
            except RetapeError as error:
                refused.append((name, _first_sentence(error)))
        return found, refused

    def candidate(
        self,
        name: str,
        policy: Strategy,
        plain: LayerCandidate | None = None,
        *,
        extra: float | None = None,
    ) -> LayerCandidate:
        """One way: what it takes, and what it costs if that is not given."""
        marked = self.fun if plain is None else checkpoint(self.fun, policy=policy)
        taken = self.footprint(marked)
        same = plain is not None and taken.temp == plain.temp_bytes
        note = "  (no gain here)" if same else ""
        if extra is None:
            extra = 0.0 if plain is None else self.extra(marked, policy)
        kernels, waits = taken.launches or (None, None)
        return LayerCandidate(
            name, policy, taken.total, taken.temp, extra, note, kernels, waits
        )

    def footprint(self, marked: Callable[..., Any]) -> MemoryReport:
        """What must fit, with the function reversed in some way."""
        step = self.step
        run = lambda *a: step.run(marked, *a, **step.kwargs)  # noqa: E731
        return footprint(run, *step.structs, donated=step.donated)

    def gradient(self, fun: Callable[..., Any]) -> Callable[..., Any]:
        """Value and gradient, as they are asked for."""
        run = _value_and_grad(self.argnums, self.has_aux)
        return lambda *a: run(fun, *a, **self.kwargs)

    def least_budget(self, way: Callable[[int], Strategy]) -> int:
        """The smallest budget that ways of one kind can keep."""
        marked = checkpoint(self.fun, policy=way(1))
        try:
            jax.eval_shape(self.gradient(marked), *self.structs)
        except BudgetError as error:
            return error.least or 1
        except RetapeError:
            pass  # Whoever tries the way is told the same, and puts it in the table.
        return 1

    def work(self, fun: Callable[..., Any]) -> int:
        """Floating-point operations of a function, about."""
        closed = as_classic(jax.make_jaxpr(fun)(*self.structs))
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
            self.value, *self.structs, plan=policy.plan, argnums=numbers, **self.kwargs
        )
        if told.prediction is None or told.steps is None:
            return 1.0
        once = self.work(lambda *a: self.value(*a, **self.kwargs))
        return told.prediction.advances / max(1, told.steps) * once / base


@contextmanager
def loops_refused() -> Iterator[None]:
    """JAX's own refusal of a loop of unknown length, with what to do."""
    try:
        yield
    except ValueError as error:
        if "Reverse-mode differentiation" not in str(error):
            raise
        raise UnsupportedError(
            "the function has a `while_loop` whose number of trips is not known "
            "while tracing: it has no plain gradient to compare with, "
            "and the extra work cannot be counted. Take the gradient by "
            "`retape.jax.grad(f, plan=retape.within(...))`, or write the loop as "
            "`retape.jax.while_loop` to go on using `jax.grad`."
        ) from error


def asked(
    fun: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    argnums: int | Sequence[int],
    *,
    has_aux: bool = False,
    step: Callable[..., Any] | None = None,
    donate_argnums: int | Sequence[int] = (),
) -> Question:
    """The question of a call of the planner.

    Raises:
        PlanError: If `donate_argnums` names arguments that there are not, or the step
            does not call the function that it is given.
    """
    structs = jax.tree.map(as_type, args)
    numbers = donate_argnums
    donated = (numbers,) if isinstance(numbers, int) else tuple(numbers)
    beyond = [i for i in donated if not 0 <= i < len(args)]
    if beyond:
        raise PlanError(
            f"`donate_argnums={donate_argnums!r}` names positions that the call with "
            f"{len(args)} arguments lacks: {beyond}. They are counted from 0, "
            "without the function that `step` is given."
        )
    inner, named = structs, kwargs
    if step is None:
        step = _value_and_grad(argnums, has_aux)
    else:
        inner, named = _arguments_inside(fun, step, structs, kwargs)
    whole = TrainingStep(step, structs, kwargs, donated)
    return Question(fun, inner, named, argnums, has_aux, whole)


def _value_and_grad(argnums: int | Sequence[int], has_aux: bool) -> Callable[..., Any]:
    def run(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        alone = lambda *a: fun(*a, **kwargs)  # noqa: E731
        return jax.value_and_grad(alone, argnums, has_aux=has_aux)(*args)

    return run


def _arguments_inside(
    fun: Callable[..., Any], step: Callable[..., Any], structs: Any, kwargs: Any
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Types of the arguments that a step calls a function with."""
    seen: list[Any] = []

    def spy(*args: Any, **kwargs: Any) -> Any:
        seen.append(jax.tree.map(_type_inside, (args, kwargs)))
        return fun(*args, **kwargs)

    with loops_refused():
        jax.eval_shape(lambda *a: step(spy, *a, **kwargs), *structs)
    if not seen:
        raise PlanError(
            "`step` did not call the function that it was given as its first argument, "
            "so there is nothing whose memory could be chosen. Write it as "
            "`def step(loss, params, ...)`, with `jax.grad(loss)` inside."
        )
    return seen[0]


def _type_inside(leaf: Any) -> Any:
    return struct(jax.typeof(leaf)) if isinstance(leaf, jax.Array) else leaf


def as_type(leaf: Any) -> Any:
    """The type of an array and where it is, or what stands for one already."""
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf
    aval = jax.typeof(leaf)
    placed = isinstance(leaf, jax.Array) and not isinstance(leaf, Tracer)
    if placed and leaf.committed:
        found = jax.ShapeDtypeStruct(aval.shape, aval.dtype, sharding=leaf.sharding)
    else:
        found = struct(aval)
    return found.update(weak_type=aval.weak_type)

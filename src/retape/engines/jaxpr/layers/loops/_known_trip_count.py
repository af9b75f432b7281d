"""Counting the trips of a `while_loop` before it runs, where that can be done.

The test looks at some of the loop's state; that state is made from some of the state
before; and so on, until no more is needed. If what is found are integers with known
values, that part of the loop is run, alone, while tracing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jax.core import Tracer, eval_jaxpr

# Not yet public: which inputs some of a program's outputs need.
from jax.interpreters import partial_eval as pe

from retape._errors import UnsupportedError
from retape.engines.jaxpr.intake._effects import take_out


class _PureFunction(NamedTuple):
    """A function of some of the loop's state."""

    jaxpr: Any
    consts: list[Any]

    def __call__(self, *state: Any) -> list[Any]:
        return eval_jaxpr(self.jaxpr, self.consts, *state)


def known_trip_count(
    cond: Callable[[Any], Any], body: Callable[[Any], Any], init: Any
) -> int | None:
    """How often the body runs; `None` if that is not known while tracing.

    Examples:
        >>> short, step = lambda s: s[0] < 10, lambda s: (s[0] + 3, s[1] * 2.0)
        >>> known_trip_count(short, step, (0, 1.0))
        4
        >>> count = lambda x: known_trip_count(lambda v: v > 1, lambda v: v // 2, x)
        >>> jax.jit(count)(8)
    """
    leaves = jax.tree.leaves(init)
    if not leaves:
        return None
    test: Any = jax.make_jaxpr(cond)(init)
    step: Any = _without_effects(jax.make_jaxpr(body)(init))
    # What the test says, a loop that does not run it could not say.
    if test.effects or step is None or len(step.out_avals) != len(leaves):
        return None
    needed = _closed_under(step.jaxpr, _inputs(test.jaxpr, [True]))
    known = [leaf for leaf, n in zip(leaves, needed, strict=True) if n]
    parts = _pure_function(test, [True], needed), _pure_function(step, needed, needed)
    if not all(map(_is_known, [*known, *parts[0].consts, *parts[1].consts])):
        return None
    if not all(_is_whole(value) for value in known):
        return None
    return _count_trips(*parts, known)


def _without_effects(step: Any) -> Any:
    """The body without what it says; `None` if it uses the results of its effects."""
    try:
        return take_out(step)[0]
    except UnsupportedError:
        return None


def _closed_under(step: Any, needed: list[bool]) -> list[bool]:
    """The state that `needed` depends on, over any number of steps."""
    while True:
        more = _inputs(step, needed)
        wider = [a or b for a, b in zip(needed, more, strict=True)]
        if wider == needed:
            return needed
        needed = wider


def _inputs(jaxpr: Any, outputs: Sequence[bool]) -> list[bool]:
    return pe.dce_jaxpr(jaxpr, list(outputs))[1]


def _pure_function(
    closed: Any, outputs: Sequence[bool], inputs: list[bool]
) -> _PureFunction:
    kept = [False] * len(closed.consts) + inputs
    slim, used, _ = pe.dce_jaxpr_consts(closed.jaxpr, list(outputs), kept)
    consts = [c for c, u in zip(closed.consts, used, strict=True) if u]
    return _PureFunction(slim, consts)


def _is_known(value: Any) -> bool:
    return not isinstance(value, Tracer)


def _is_whole(value: Any) -> bool:
    kind = jnp.result_type(value)
    return jnp.issubdtype(kind, jnp.integer) or jnp.issubdtype(kind, jnp.bool_)


def _count_trips(test: _PureFunction, step: _PureFunction, known: list[Any]) -> int:
    with jax.ensure_compile_time_eval():
        state = [jnp.asarray(value) for value in known]
        done = lax.while_loop(
            lambda s: test(*s[1])[0],
            lambda s: (s[0] + 1, _typed_like(step(*s[1]), s[1])),
            (jnp.asarray(0), state),
        )
        return int(done[0])


def _typed_like(values: list[Any], like: list[Any]) -> list[Any]:
    return [v.astype(w.dtype) for v, w in zip(values, like, strict=True)]

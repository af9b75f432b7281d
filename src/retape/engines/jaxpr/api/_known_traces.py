"""Functions that are traced once for each set of types, as under `jax.checkpoint`.

A layer that is called twenty times in a network, or in every step of a loop in Python,
is one program. It is found by the function, by the types of what it is called with, by
JAX's settings, and by what the function reads besides (`intake/_read_state`): a layer
whose surroundings have changed is traced again.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax
from jax.core import Tracer

from retape.engines.jaxpr.api._trace import FlatCall, Traced, trace
from retape.engines.jaxpr.intake._read_state import (
    MadeAround,
    ReadState,
    same_but_counts,
    state_of,
)
from retape.engines.jaxpr.jaxprs._caches import forgotten
from retape.engines.jaxpr.jaxprs._jax_internals import trace_context
from retape.plan._base import Plan

_MOST_TRACES = 16
"""Traces of one function that are remembered, the last ones made."""


@dataclass(frozen=True, slots=True, eq=False)
class Partial(MadeAround):
    """A function, some of whose arguments are fixed: it is known by both."""

    function: Callable[..., Any]
    positional: dict[int, Any]
    """By their positions among all."""
    named: dict[str, Any]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        whole = list(args)
        for i in sorted(self.positional):
            whole.insert(i, self.positional[i])
        return self.function(*whole, **self.named, **kwargs)


class _Live:
    """Constants; a value of a trace that is under way is not kept alive by them."""

    def __init__(self, values: Iterable[Any]) -> None:
        self.held = [weakref.ref(v) if isinstance(v, Tracer) else v for v in values]

    def values(self) -> tuple[Any, ...]:
        """As they were; `None` for one that is no more."""
        refs = weakref.ref
        return tuple(h() if isinstance(h, refs) else h for h in self.held)


class _KnownTrace(NamedTuple):
    """A trace, and what the function left behind that it reads."""

    key: Any
    state: ReadState
    traced: Traced
    consts: _Live
    acting: _Live
    """Its constants, and those of what has its effects."""


_by_function: weakref.WeakKeyDictionary[Any, list[_KnownTrace]] = (
    weakref.WeakKeyDictionary()
)
forgotten(_by_function.clear)


def trace_once(
    fun: Callable[..., Any], call: FlatCall, plan: Plan | None, *, marked: bool = False
) -> Traced:
    """`trace`, or what it gave before for the same."""
    known = _traces_of(fun)
    key = None if known is None else _key_of_call(call, plan, marked)
    before = None if key is None else _state(fun, call)
    if known is None or before is None:
        return trace(fun, call, plan, marked=marked)
    for each in known:
        if each.key == key and each.state == before:
            consts, more = each.consts.values(), each.acting.values()
            if not any(c is None for c in (*consts, *more)):
                return replace(each.traced, consts=consts, acting_consts=more)
    traced = trace(fun, call, plan, marked=marked)
    after = _state(fun, call)
    if after is not None and same_but_counts(before, after):
        held = _Live(traced.consts), _Live(traced.acting_consts)
        kept = replace(traced, consts=(), acting_consts=())
        known[:] = [_KnownTrace(key, after, kept, *held), *known[: _MOST_TRACES - 1]]
    return traced


def _traces_of(fun: Callable[..., Any]) -> list[_KnownTrace] | None:
    """What is known of a function; `None` if it cannot be told from others."""
    root = fun
    while isinstance(root, MadeAround):
        root = root.function
    root = getattr(root, "__func__", root)
    try:
        return _by_function.setdefault(root, [])
    except TypeError:  # it cannot be hashed, or referred to weakly
        return None


def _key_of_call(call: FlatCall, plan: Plan | None, marked: bool) -> Any:
    signature = call.signature()
    try:
        types = tuple(map(jax.typeof, call.leaves))
    except TypeError:  # an object that will be an array
        return None
    settings = trace_context()
    return None if signature is None else (signature, types, plan, marked, settings)


def _state(fun: Callable[..., Any], call: FlatCall) -> ReadState | None:
    """What the function reads, and objects among its arguments that are no arrays."""
    parts = list(_node_data(call.tree))
    return state_of(fun, [value for _, value in call.fixed], parts)


@functools.lru_cache(256)
def _node_data(tree: Any) -> tuple[Any, ...]:
    """Classes of objects in a tree, whose methods may be called, and what is fixed."""
    data = tree.node_data()
    inner = [part for child in tree.children() for part in _node_data(child)]
    return (*(data or ()), *inner)

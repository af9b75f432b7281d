"""The one module that imports private names of JAX, each with its reason."""

from __future__ import annotations

from contextlib import AbstractContextManager

# No public name gives the user's own line of an equation; the one in `traceback` is a
# stack in which JAX's frames and the user's are not told apart.
# Nor does one bind an equation again as coming from that line.
from jax._src import source_info_util

# `psum` and its like carry an effect that says only which mesh axis they name; no
# public name tells it from an effect that must not be repeated.
from jax._src.core import InternalMutableArrayEffect, NamedAxisEffect
from jax._src.state.discharge import discharge_state

# What turns reads and writes of a reference into values that are passed on.
from jax._src.state.types import RefEffect
from jax.extend import core


def source_line(eqn: core.JaxprEqn) -> str:
    """`file:line (function)` of the user's code that made an equation."""
    return source_info_util.summarize(eqn.source_info)


def as_written(eqn: core.JaxprEqn) -> AbstractContextManager[None]:
    """Operations bound inside come from the user's line that made an equation."""
    return source_info_util.user_context(eqn.source_info.traceback)


def names_an_axis(effect: object) -> bool:
    """Whether an effect is no more than the name of a mesh axis."""
    return isinstance(effect, NamedAxisEffect)


def changes_reference(effect: object) -> bool:
    """Whether an effect reads or writes a reference."""
    return isinstance(effect, RefEffect)


def without_references(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program with the references that it makes turned into values."""
    if any(isinstance(e, InternalMutableArrayEffect) for e in jaxpr.effects):
        return discharge_state(jaxpr)
    return jaxpr

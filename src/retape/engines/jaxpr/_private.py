"""The one module that imports private names of JAX, each with its reason."""

from __future__ import annotations

from contextlib import AbstractContextManager

# No public name gives the user's own line of an equation; the one in `traceback` is a
# stack in which JAX's frames and the user's are not told apart.
# Nor does one bind an equation again as coming from that line.
from jax._src import source_info_util
from jax.extend import core


def source_line(eqn: core.JaxprEqn) -> str:
    """`file:line (function)` of the user's code that made an equation."""
    return source_info_util.summarize(eqn.source_info)


def as_written(eqn: core.JaxprEqn) -> AbstractContextManager[None]:
    """Operations bound inside come from the user's line that made an equation."""
    return source_info_util.user_context(eqn.source_info.traceback)

"""The one module that imports private names of JAX, each with its reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from importlib import import_module
from os import sep
from pathlib import Path
from typing import Any

import jax

# The flags that say how rules and `jax.checkpoint` are built (the public
# `jax.config.update` sets them for all threads; these for one, and for a while), and
# the settings as a key.
from jax._src import config as _config

# No public name gives the user's own line of an equation; the one in `traceback` is a
# stack in which JAX's frames and the user's are not told apart.
# Nor does one bind an equation again as coming from that line.
from jax._src import source_info_util

# `psum` and its like carry an effect that says only which mesh axis they name; no
# public name tells it from an effect that must not be repeated. The other three names
# are public in `jax.extend.core` from 0.10 on.
from jax._src.core import DropVar as DropVar
from jax._src.core import (
    InternalMutableArrayEffect,
    NamedAxisEffect,
    get_opaque_trace_state,
    trace_ctx,
)
from jax._src.core import jaxprs_in_params as jaxprs_in_params

# No public name tells which values inside `vmap` are the same for all lanes.
from jax._src.interpreters.batching import BatchTracer

# The trace that writes a program, and the one that is under way: no public name tells
# `jax.jit` from `jax.grad` there.
from jax._src.interpreters.partial_eval import DynamicJaxprTrace

# What loads the compiler of a platform that is not here.
from jax._src.lib import xla_client

# What turns reads and writes of a reference into values that are passed on.
from jax._src.state.discharge import discharge_state
from jax._src.state.types import AbstractRef, RefEffect
from jax.core import Tracer
from jax.extend import core
from jax.interpreters import partial_eval as pe


def source_line(eqn: core.JaxprEqn) -> str:
    """`file:line (function)` of the user's code that made an equation.

    Or a word that says that JAX knows none: it traces its own functions once.
    """
    for frame in source_info_util.user_frames(eqn.source_info.traceback):
        return _told(frame)
    return "a line unknown to JAX"


def _told(frame: Any) -> str:
    return f"{frame.file_name}:{frame.start_line} ({frame.function_name})"


def source_place(eqn: core.JaxprEqn) -> tuple[str, int, int, int, int] | None:
    """File, line, column, last line and column of the user's code, from 1 and 0."""
    for frame in source_info_util.user_frames(eqn.source_info.traceback):
        start, end = frame.start_line, frame.end_line
        return frame.file_name, start, frame.start_column, end, frame.end_column
    return None


def caller_line(eqn: core.JaxprEqn) -> str:
    """As `source_line`; of what Retape or Flax wrote, the line that called it.

    Empty where no user's line is known.
    """
    for frame in source_info_util.user_frames(eqn.source_info.traceback):
        if not any(part in frame.file_name for part in _LIBRARIES):
            return _told(frame)
    return ""


_LIBRARIES = (str(Path(__file__).parents[3]), f"{sep}flax{sep}", f"{sep}equinox{sep}")
"""In the paths of files that a user did not write."""


def as_written(eqn: core.JaxprEqn) -> AbstractContextManager[None]:
    """Operations bound inside come from the user's line that made an equation."""
    return source_info_util.user_context(eqn.source_info.traceback)


def current_source() -> Any:
    """The source of an operation that is bound here: `JaxprEqn.source_info`.

    What is traced to a program of its own is told only as far as that program goes.
    """
    return source_info_util.current()


def names_an_axis(effect: object) -> bool:
    """Tell whether an effect is no more than the name of a mesh axis."""
    return isinstance(effect, NamedAxisEffect)


def axis_names(code: Any) -> frozenset[Any]:
    """The names of axes that collectives in a program speak of."""
    return frozenset(e.name for e in code.effects if isinstance(e, NamedAxisEffect))


def named_by(eqn: core.JaxprEqn) -> frozenset[Any]:
    """The names of axes that an operation speaks of."""
    return frozenset(e.name for e in eqn.effects if isinstance(e, NamedAxisEffect))


def is_mapped(value: object) -> bool:
    """Whether a value inside `vmap` differs from lane to lane."""
    return isinstance(value, BatchTracer)


def changes_reference(effect: object) -> bool:
    """Tell whether an effect reads or writes a reference."""
    return isinstance(effect, RefEffect)


def is_reference(aval: object) -> bool:
    """Tell whether a type is that of a reference."""
    return isinstance(aval, AbstractRef)


def without_references(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program with the references that it makes turned into values."""
    if any(isinstance(e, InternalMutableArrayEffect) for e in jaxpr.effects):
        return discharge_state(jaxpr)
    return jaxpr


def trace_context() -> Any:
    """All of JAX's settings that a trace depends on, as a key: JAX's own caches use it.

    No public name tells them all, and a list by hand lacks what the next release adds.
    """
    return _config.trace_context()


def new_setting(name: str, about: str) -> Any:
    """A setting of ours that JAX's caches know, traces and compiled programs alike.

    Its `value` is `None`, and another one within `with setting(value):`. No public name
    makes one.
    """
    return _config.string_or_object_state(
        name, None, about, include_in_jit_key=True, include_in_trace_context=True
    )


def pjrt_topology(
    platform: str, library: str, described: Mapping[str, Any], name: str = ""
) -> Sequence[Any]:
    """Devices to compile for, of a platform's plugin that makes no client.

    The public `jax.experimental.topologies` asks plugins that JAX starts.
    """
    if library not in _LOADED:
        # Not the platform's own name: a GPU that is here has a plugin under that.
        ours = f"retape_{platform}"
        _LOADED[library] = xla_client.load_pjrt_plugin_dynamically(ours, library)
        if name:  # what knows names of topologies reads its own flags first
            xla_client.initialize_pjrt_plugin(ours)
    topology: Any = xla_client.make_c_api_device_topology(
        _LOADED[library], name, **described
    )
    return topology._make_compile_only_devices()


_LOADED: dict[str, Any] = {}
"""Plugins that are loaded, by their libraries."""


_CLEAN = get_opaque_trace_state(convention="nnx")
"""The state in which no transformation is under way."""


def under_transformation(leaves: Sequence[Any]) -> bool:
    """Tell whether a transformation is under way, here or through the values given."""
    if any(isinstance(v, Tracer) for v in leaves):
        return True
    return get_opaque_trace_state(convention="nnx") != _CLEAN


def is_staged() -> bool:
    """Tell whether what is bound now becomes a program, of `jax.jit` or `make_jaxpr`.

    Under `jax.grad` alone it does not: what is bound there is run at once.
    """
    trace: Any = trace_ctx.trace
    while trace is not None:
        if isinstance(trace, DynamicJaxprTrace):
            return True
        trace = getattr(trace, "parent_trace", None)
    return False


# What one release of JAX says in another way than the next ----------------------------

TRIED = ((0, 10), (0, 11), (0, 12))
"""Releases with which the whole suite was run, compiled programs and all."""


def was_tried() -> bool:
    """Whether this release of JAX is one of them.

    What a test of the compiled program has to show anew for each release is left out
    with any other; results do not depend on it.
    """
    return jax.__version_info__[:2] in TRIED


def varying_axes(aval: Any) -> frozenset[str]:
    """The mesh axes along which a value may differ from device to device."""
    return aval.vma if hasattr(aval, "vma") else aval.manual_axis_type.varying


def manual_axes(aval: Any) -> dict[str, Any]:
    """All that a type says of mesh axes, as an option of `jax.ShapeDtypeStruct`."""
    if hasattr(aval, "vma"):
        return {"vma": aval.vma}
    return {"manual_axis_type": aval.manual_axis_type}


def scan_parts(params: Mapping[str, Any]) -> tuple[int, int]:
    """The numbers of a `scan`'s operands that are constants, and that are its carry."""
    if "num_consts" in params:
        return params["num_consts"], params["num_carry"]
    consts, carry, _ = params["ft_in"].unpack()
    return len(consts), len(carry)


def scan_widened(
    params: Mapping[str, Any], jaxpr: core.ClosedJaxpr, consts: int, rows: int
) -> dict[str, Any]:
    """The parameters of a `scan` with another body, which reads more.

    Args:
        params: Those of the scan as it was.
        jaxpr: The new body.
        consts: How many constants it has more, behind the others.
        rows: How many arrays it goes through more, behind the others.
    """
    if "num_consts" in params:
        more = {"num_consts": params["num_consts"] + consts}
    else:
        # From 0.11 on a tree says which operands are what.
        tree = import_module("jax._src.flattree")
        fixed, carry, xs = params["ft_in"].unpack()
        widened = (fixed, tree.nones(consts)), carry, (xs, tree.nones(rows))
        more = {"ft_in": tree.pack(widened)}
    return {**params, "jaxpr": jaxpr, **more}


Dce = Callable[[Sequence[bool], core.JaxprEqn], tuple[list[bool], Any]]
"""From the outputs that are read and an equation: the inputs it needs, and the rest."""


def register_dce(primitive: core.Primitive, rule: Dce) -> None:
    """Say how an equation is made smaller where not all of its outputs are read."""

    # Since 0.12 a rule is told, besides, which references are read later: none here.
    def wrapped(used: Sequence[bool], *rest: Any) -> tuple[list[bool], Any]:
        return rule(used, rest[-1])

    pe.dce_rules[primitive] = wrapped


# Rules, `jax.checkpoint` and names as primitives of JAX's new kind --------------------

_FLAGS = [
    getattr(_config, name)
    for name in ("remat3", "custom_jvp3", "custom_vjp3")
    if hasattr(_config, name)
]
"""Under which JAX builds them so: from 0.9 on one after the other."""


@contextmanager
def classic_rules() -> Iterator[None]:
    """Build rules and `jax.checkpoint` as equations with programs for parameters."""
    with ExitStack() as stack:
        for flag in _FLAGS:
            if flag.value:
                stack.enter_context(flag(False))
        yield


def is_high(jaxpr: Any) -> bool:
    """Whether JAX says of a program that it has primitives of the new kind."""
    return getattr(getattr(jaxpr, "jaxpr", jaxpr), "is_high", False)


def _of(module: str, name: str) -> Any:
    """A class of JAX's own, or one that has no instances where it is not there."""
    try:
        return getattr(import_module(f"jax._src.{module}"), name)
    except (ImportError, AttributeError):
        return type(name, (), {})


def rule_functions(eqn: core.JaxprEqn) -> tuple[int, ...] | None:
    """The user's functions that are a call's rule, by identity, if JAX still has them.

    They stand behind wrappers that are made anew whenever the call is traced.
    """
    names = ("jvp_jaxpr_fun", "fwd_jaxpr_thunk", "bwd")
    found = [_user_function(eqn.params[name]) for name in names if name in eqn.params]
    return None if None in found else tuple(map(id, found))


def _user_function(wrapped: Any) -> Any:
    """The function that a rule's wrapper was made of; `None` if it is not found."""
    function = getattr(wrapped, "f", None)
    for _ in range(2 * len(_HELD_AS)):
        if not getattr(function, "__module__", "").startswith("jax._src"):
            return function
        cells = getattr(function, "__closure__", None) or ()
        names = getattr(getattr(function, "__code__", None), "co_freevars", ())
        held = dict(zip(names, cells, strict=True))
        cell = next((held[n] for n in _HELD_AS if n in held), None)
        if cell is None:
            return function
        function = getattr(cell.cell_contents, "f", cell.cell_contents)
    return None


_HELD_AS = ("fn", "jvp", "fwd", "jvp_jaxpr_fun", "jvp_jaxpr_thunk", "fwd_jaxpr_thunk")
"""As what JAX's wrappers hold what they were made of."""


HIJAX = "call_hi_primitive"
"""The one primitive of the new kind; its parameter `_prim` holds what it means."""
RematTraced = _of("ad_checkpoint", "RematTraced")
CheckpointName = _of("ad_checkpoint", "CheckpointName")
CustomJVPTraced = _of("hijax", "CustomJVPTraced")
CustomVJPTraced = _of("hijax", "CustomVJPTraced")
Collected = _of("interpreters.ad", "ValAccum")
"""What a rule of the new kind adds a cotangent to."""

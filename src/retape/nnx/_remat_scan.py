"""`remat_scan`: the call of `nnx.scan`, with a say in what is kept between layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import wraps
from numbers import Integral
from types import MappingProxyType
from typing import Any, TypedDict, TypeVar, Unpack, overload

import jax
from flax import nnx

from retape import jax as retape_jax
from retape._errors import PlanError, UnsupportedError
from retape.engines.jaxpr.layers.loops._cut_loop import Loops
from retape.engines.jaxpr.layers.loops._options import LoopOptions
from retape.engines.jaxpr.layers.remat._policy import Strategy
from retape.engines.jaxpr.layers.strategies._within_budget import as_policy
from retape.plan._base import Plan
from retape.plan._constructors import budgeted
from retape.plan._options import Memory

F = TypeVar("F", bound=Callable[..., Any])
NOTHING: Mapping[str, Any] = MappingProxyType({})


class Options(TypedDict, total=False):
    """The options of `remat_scan`, for type checkers."""

    length: int | None
    reverse: bool
    unroll: int | bool
    _split_transpose: bool
    in_axes: Any
    out_axes: Any
    transform_metadata: Mapping[str, Any]
    graph: bool | None
    graph_updates: bool | None
    segment_length: int | None
    levels: int | None
    plan: Plan | None
    policy: Callable[..., Any] | None
    offload: Memory | None
    memory: int | str | None


@overload
def remat_scan(f: F, **options: Unpack[Options]) -> F: ...
@overload
def remat_scan(f: None = None, **options: Unpack[Options]) -> Callable[[F], F]: ...
def remat_scan(
    f: Callable[..., Any] | None = None,
    *,
    length: int | None = None,
    reverse: bool = False,
    unroll: int | bool = 1,
    _split_transpose: bool = False,
    in_axes: Any = (nnx.Carry, 0),
    out_axes: Any = (nnx.Carry, 0),
    transform_metadata: Mapping[str, Any] = NOTHING,
    graph: bool | None = None,
    graph_updates: bool | None = None,
    segment_length: int | None = None,
    levels: int | None = None,
    plan: Plan | None = None,
    policy: Callable[..., Any] | Plan | None = None,
    offload: Memory | None = None,
    memory: int | str | None = None,
) -> Any:
    """`flax.nnx.scan` whose gradient keeps a few carries instead of all of them.

    `nnx.scan` keeps the carry of every layer for the backward pass, and
    `nnx.remat` of the layer leaves them there: 48 layers of 65,536 tokens of width
    2,048 are 12 GiB. Here the carries at the ends of segments are kept, and a segment
    is run again when its turn comes to be reversed.

    Values, gradients and the state of the layers afterwards are those of `nnx.scan`.
    State that a layer changes (statistics of a batch, counters, the counts of
    `nnx.Rngs`) is changed once, however often the layer is run; a dropout mask is
    the same each time. Any number of layers can be divided, a prime one too.

    Args:
        f: The layer function, as for `nnx.scan`; without it a decorator is returned.
        length: Number of layers, where no argument is scanned.
        reverse: Whether to run from the last layer to the first.
        unroll: Layers in one turn of the innermost loop.
        _split_transpose: As in `nnx.scan`, where it is experimental.
        in_axes: For each argument: an axis to scan along, None (the same for all
            layers), `nnx.Carry`, or `nnx.StateAxes` with one of these for each kind
            of state.
        out_axes: Likewise for the results.
        transform_metadata: Sharding metadata, as for `nnx.scan`:
            `{nnx.PARTITION_NAME: "layers"}`.
        graph: NNX's graph mode, or its tree mode; by default what NNX is set to.
        graph_updates: Whether changes of a module's structure are carried out of it.
        segment_length: Layers in a segment. Bytes kept: about
            (n / segment_length + segment_length) carries.
        levels: Depth k of nested segments: about k * n^(1/k) carries are kept, and
            each layer is run at most k times beside its backward pass. By default 2,
            or 1 with `offload`.
        plan: A plan of Retape's, such as `retape.fixed_space(snapshots=6)`; a stage is
            one layer, unless the plan says otherwise.
        policy: What is kept of a layer's intermediates when its segment is run
            again: one of `jax.checkpoint_policies`. By default nothing: each layer is
            run from its input when it is reversed.
        offload: `"host"` to keep the carries, or the plan's snapshots, in the host's
            memory.
        memory: Bytes, or a text such as "6 GiB", for the temporaries of the stack's own
            gradient on each device, in the place of all of the above: levels, policy
            and offload are chosen. When a derivative is taken, a few ways are
            compiled, and the one of least extra work that fits is used.

    Returns:
        A function of the same arguments as `f`, all its layers one after another.

    Raises:
        PlanError: More than one of `segment_length`, `levels` and `plan`; one that
            cannot be; axes that are none; a state without the axis that is scanned;
            `memory` with an option that it chooses.
        BudgetError: When a derivative is taken, if `memory` cannot be kept; the least
            that was found is named.
        UnsupportedError: State that is changed in place; an `f` that cannot be called.
        ValueError: If lengths disagree, or a kind of state has no axis, as `nnx.scan`.
        TypeError: If the carry changes its type, as `jax.lax.scan`.

    Examples:
        >>> import jax, jax.numpy as jnp, retape.nnx
        >>> from flax import nnx
        >>> @nnx.split_rngs(splits=7)
        ... @nnx.vmap
        ... def stack(rngs):
        ...     return nnx.Linear(4, 4, rngs=rngs)
        >>> layers = stack(nnx.Rngs(0))
        >>> @retape.nnx.remat_scan(in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)
        ... def forward(x, layer):
        ...     return x + jnp.tanh(layer(x))
        >>> loss = lambda layers, x: jnp.sum(forward(x, layers) ** 2)
        >>> nnx.grad(loss)(layers, jnp.ones((3, 4))).kernel.shape
        (7, 4, 4)

    References:
        Griewank 1992 (nested segments); Chen et al. 2016, section 4.4 (sqrt(n)).
    """
    theirs: dict[str, Any] = {
        "length": length,
        "reverse": reverse,
        "unroll": unroll,
        "_split_transpose": _split_transpose,
        "in_axes": in_axes,
        "out_axes": out_axes,
        "transform_metadata": transform_metadata,
    }
    # Not passed where they are not asked for: older releases lack them.
    theirs |= {} if graph is None else {"graph": graph}
    theirs |= {} if graph_updates is None else {"graph_updates": graph_updates}
    plan = _layer_by_layer(plan)
    ours = LoopOptions(plan, levels, segment_length, as_policy(policy), offload)
    way = Loops(ours) if memory is None else _within(memory, ours)
    _check_options(in_axes, out_axes, transform_metadata)
    if f is None:
        return lambda f: _divided(f, theirs, way)
    return _divided(f, theirs, way)


def _layer_by_layer(plan: Plan | None) -> Plan | None:
    """The plan with stages of one layer, where it leaves their length open.

    A stage's tape may take twice what the snapshots take, which is little where a step
    is cheap. The tape of a few layers is many times their carries.
    """
    if not isinstance(plan, Plan) or plan.sizes_stages or plan.budget is not None:
        return plan
    return plan.with_stage(1)


def _within(memory: int | str, options: LoopOptions) -> Plan | None:
    """The budget, which leaves nothing else to be chosen."""
    given = [f"`{k}={v!r}`" for k, v in options.as_keywords().items() if v is not None]
    if given:
        raise PlanError(
            f"`memory={memory!r}` chooses levels, policy and offload, and "
            f"{' and '.join(given)} says one of them. Pass one or the other."
        )
    return budgeted(None, memory)


def _divided(
    f: Callable[..., Any], theirs: dict[str, Any], way: Strategy | Plan | None
) -> Callable[..., Any]:
    """`nnx.scan` with its options, marked: its loop is run in a way of ours."""
    if not callable(f):
        raise UnsupportedError(
            f"`remat_scan({f!r})`: this cannot be called, so it is not a layer. Pass "
            "a function of a carry and a layer, as in `remat_scan(lambda x, layer: "
            "layer(x), in_axes=(nnx.Carry, 0), out_axes=nnx.Carry)`."
        )
    plain = nnx.scan(f, **theirs)
    marked = retape_jax.checkpoint(plain, policy=way)

    @wraps(f)
    def scanned(*args: Any, **kwargs: Any) -> Any:
        _check_variables((*args, kwargs))
        # With the compiler switched off a scan is a Python loop: nothing to mark.
        run = plain if jax.config.jax_disable_jit else marked  # pyright: ignore
        try:
            return run(*args, **kwargs)
        except IndexError:
            _check_axes(theirs["in_axes"], args)
            raise

    return scanned


def _check_options(in_axes: Any, out_axes: Any, metadata: Any) -> None:
    """Refuse what Flax takes for something else, or refuses without a name.

    Raises:
        PlanError: If an axis is none, or metadata are no mapping.
    """
    for name, axes in (("in_axes", in_axes), ("out_axes", out_axes)):
        if isinstance(axes, list):
            raise PlanError(
                f"`{name}={axes}` is a list. Pass a tuple, with an entry for each "
                + ("argument." if name == "in_axes" else "result.")
            )
        for path, axis in jax.tree.leaves_with_path(axes, is_leaf=_is_axis):
            if not _is_axis(axis):
                where = name + jax.tree_util.keystr(path)
                raise PlanError(
                    f"`{where}={axis!r}` is not an axis. Pass a whole number, None "
                    "(the same for all layers), nnx.Carry (handed from layer to "
                    "layer), or an nnx.StateAxes."
                )
    if not isinstance(metadata, Mapping):
        raise PlanError(
            f"`transform_metadata={metadata!r}` is not a mapping. Pass one, such as "
            '{nnx.PARTITION_NAME: "layers"}.'
        )


def _is_axis(axis: Any) -> bool:
    if axis is None or axis is nnx.Carry or isinstance(axis, nnx.StateAxes):
        return True
    return isinstance(axis, Integral) and not isinstance(axis, bool)


def _check_variables(args: Any) -> None:
    """Refuse Variables that are changed in place: running a layer again would do so.

    Raises:
        UnsupportedError: With the path of the first such Variable.
    """
    for path, node in nnx.iter_graph(args):
        for option in ("ref", "hijax"):
            if isinstance(node, nnx.Variable) and getattr(node, option, False):
                where = "".join(f"[{key!r}]" for key in path)
                raise UnsupportedError(
                    f"args{where} is a Variable made with {option}=True, which "
                    "layers change in place: a layer that is run again would change it "
                    f"again. Make it with {option}=False. Its changes are then carried "
                    "out of the loop, and made once."
                )


def _check_axes(in_axes: Any, args: Sequence[Any]) -> None:
    """Name the array without the axis of which JAX only says that it is not there."""
    for path, leaf, axis in _scanned(in_axes, args):
        shape = jax.numpy.shape(leaf)
        if not -len(shape) <= axis < len(shape):
            raise PlanError(
                f"The argument at {path} has shape {shape} and so no axis {axis} to be "
                "scanned along. Each layer needs a state of its own: make the layers "
                "with nnx.vmap (a bridged Linen module with `lazy_init` in it), split "
                "random streams with nnx.split_rngs(splits=...), or give this one None "
                "in in_axes (for all layers the same) or nnx.Carry."
            )


def _scanned(in_axes: Any, args: Sequence[Any]) -> Iterator[tuple[str, Any, int]]:
    """Every array that is scanned, with a path to it and its axis."""
    for i, (axes, value) in enumerate(zip(in_axes, args, strict=False)):
        if isinstance(axes, nnx.StateAxes):
            states = nnx.split(value, *axes.filters)[1:]
            pairs = [*zip(axes.axes, states, strict=True)]
        else:
            pairs = [(axes, nnx.split(value)[1])]
        for axis, state in pairs:
            if isinstance(axis, Integral):
                for where, leaf in nnx.to_flat_state(state):
                    path = "".join(f"[{key!r}]" for key in where)
                    yield f"args[{i}]{path}", leaf.get_value(), int(axis)

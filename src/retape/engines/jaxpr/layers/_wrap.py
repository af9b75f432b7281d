"""`Checkpointed(layer)`: a layer that is run again in reverse.

A callable or an Equinox module is marked with its arrays as arguments. A Flax NNX
module is taken apart and put together inside; what the call changed (statistics,
counters, random streams) is written back once. A Linen module is marked in `apply`;
inside another Linen module Flax's own lifting is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import jax

from ...._errors import UnsupportedError
from ._checkpoint import checkpoint
from ._options import Policy, check_policy

_OWN = ("_layer", "_policy")


@jax.tree_util.register_pytree_node_class
class Checkpointed:
    """A layer whose reverse mode runs it again, instead of storing what it computes.

    Attributes, parameters, name and the arrays as a pytree are those of the layer.

    Args:
        layer: A callable: a function, a Flax NNX or Linen module, an Equinox module,
            or any object with `__call__`.
        policy: What is kept, as in `retape.jax.checkpoint`.

    Example:
        >>> import jax, jax.numpy as jnp, retape.jax
        >>> class Scale:
        ...     factor = 3.0
        ...     def __call__(self, x):
        ...         return self.factor * jnp.sin(x)
        >>> layer = retape.jax.Checkpointed(Scale())
        >>> layer.factor, f"{jax.grad(layer)(0.0):.1f}"
        (3.0, '3.0')
    """

    _layer: Any
    _policy: Policy | None

    def __init__(self, layer: Callable[..., Any], *, policy: Policy | None = None):
        if not callable(layer):
            raise UnsupportedError(
                f"`Checkpointed({type(layer).__name__})`: an object that cannot be "
                "called has nothing to run again. Pass a function or a layer."
            )
        check_policy(policy)
        object.__setattr__(self, "_layer", layer)
        object.__setattr__(self, "_policy", policy)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer = self._layer
        if _is_a(layer, "flax.nnx", "Module"):
            return _call_nnx(layer, self._policy, args, kwargs)
        if _is_a(layer, "flax.linen", "Module"):
            lifted = sys.modules["flax.linen"].remat(_apply, policy=self._policy)
            return lifted(layer, *args, **kwargs)
        return checkpoint(_apply, policy=self._policy)(layer, *args, **kwargs)

    def apply(self, variables: Any, *args: Any, **kwargs: Any) -> Any:
        """A Linen module's `apply`, run again in reverse."""
        run = checkpoint(self._layer.apply, policy=self._policy)
        return run(variables, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _OWN:  # while it is being copied
            raise AttributeError(name)
        return getattr(self._layer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._layer, name, value)

    def __repr__(self) -> str:
        return f"Checkpointed({self._layer!r})"

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """The layer's arrays; a layer that is no pytree is part of the structure."""
        if jax.tree_util.all_leaves([self._layer]):
            return (), (self._layer, self._policy)
        return (self._layer,), (None, self._policy)

    @classmethod
    def tree_unflatten(cls, fixed: Any, children: tuple[Any, ...]) -> Checkpointed:
        """The same with other arrays."""
        made = object.__new__(cls)
        layer, policy = fixed
        object.__setattr__(made, "_layer", children[0] if children else layer)
        object.__setattr__(made, "_policy", policy)
        return made


def _apply(layer: Any, *args: Any, **kwargs: Any) -> Any:
    return layer(*args, **kwargs)


def _is_a(layer: Any, module: str, name: str) -> bool:
    """Whether a layer is of a library's class; the library is not imported for it."""
    library = sys.modules.get(module)
    return library is not None and isinstance(layer, getattr(library, name))


def _call_nnx(
    layer: Any, policy: Policy | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    nnx = sys.modules["flax.nnx"]
    definition, state = nnx.split(layer)
    leaves, tree = jax.tree.flatten(state)
    changed: list[int] = []

    def run(leaves: list[Any], args: Any, kwargs: Any) -> Any:
        inside = nnx.merge(definition, jax.tree.unflatten(tree, leaves))
        out = inside(*args, **kwargs)
        after, tree_after = jax.tree.flatten(nnx.state(inside))
        if tree_after != tree:
            raise UnsupportedError(
                f"`Checkpointed({type(layer).__name__})`: the call adds state to the "
                "module or takes some away. Let it create all of its state at once, "
                "when it is made."
            )
        changed[:] = [i for i, v in enumerate(after) if v is not leaves[i]]
        return out, [after[i] for i in changed]

    out, values = checkpoint(run, policy=policy)(leaves, args, kwargs)
    if changed:
        for i, value in zip(changed, values, strict=True):
            leaves[i] = value
        nnx.update(layer, jax.tree.unflatten(tree, leaves))
    return out

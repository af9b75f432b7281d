"""`Checkpointed(layer)`: a layer that is run again in reverse.

A callable or an Equinox module is marked with its arrays as arguments. Flax modules are
lifted (`intake/_flax`, `intake/_flax`): what the call changed (statistics, counters,
random streams, sown values), in the layer or in any argument, is changed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax

from retape._errors import UnsupportedError
from retape.engines.jaxpr.intake._flax import (
    call_linen,
    is_linen,
    make_known,
    owner,
)
from retape.engines.jaxpr.layers.face._checkpoint import Marking
from retape.engines.jaxpr.layers.remat._policy import Policy
from retape.plan._base import Plan

_OWN_FIELDS = ("_layer", "_mark")


@jax.tree_util.register_pytree_with_keys_class
class Checkpointed:
    """A layer whose reverse mode runs it again, instead of storing what it computes.

    Attributes, parameters, name and the arrays as a pytree are those of the layer. What
    a call changes in a Flax module, the layer or any argument, is changed once, as
    under `nnx.remat` and `nn.remat`. It can be an attribute of a module itself.

    Args:
        layer: A callable: a function, a Flax NNX or Linen module or a method of one, an
            Equinox module, or any object with `__call__`.
        policy: What is kept, as in `retape.jax.checkpoint`.
        static_argnums: Positions of arguments of the call that are not traced, counted
            without the layer. What is no array is never traced.
        static_argnames: Names of keyword arguments that are not traced.

    Raises:
        UnsupportedError: If `layer` cannot be called.
        PlanError: If `policy` is no policy; when called, if a call has not the
            arguments that `static_argnums` names.

    Examples:
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
    _mark: Marking

    def __init__(
        self,
        layer: Callable[..., Any],
        *,
        policy: Policy | Plan | None = None,
        static_argnums: int | Sequence[int] = (),
        static_argnames: str | Iterable[str] = (),
    ):
        if not callable(layer):
            raise UnsupportedError(
                f"`Checkpointed({type(layer).__name__})`: this cannot be called, so "
                "there is nothing to run again. Pass a function or a layer."
            )
        mark = Marking.of(policy, static_argnums, static_argnames)
        object.__setattr__(self, "_layer", layer)
        object.__setattr__(self, "_mark", mark)
        make_known(type(self), layer, _fields_of, _around)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        layer, function = owner(self._layer)
        return self._run(function, layer, args, kwargs)

    def apply(self, variables: Any, *args: Any, **kwargs: Any) -> Any:
        """A Linen module's `apply`, run again in reverse."""

        def applied(variables: Any, *args: Any, **kwargs: Any) -> Any:
            return self._layer.apply(variables, *args, **kwargs)

        return self._run(applied, variables, args, kwargs)

    def _run(
        self,
        function: Callable[..., Any],
        first: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """Call a function, marked, with an argument that the user does not count."""
        free, args, kwargs = self._mark.traced_part(
            function, (first, *args), kwargs, behind=1
        )
        mark = Marking(self._mark.policy)
        if is_linen(first):
            return call_linen(free, first, mark, args[1:], kwargs)
        return mark(free)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name in _OWN_FIELDS:  # while it is being copied
            raise AttributeError(name)
        return getattr(self._layer, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._layer, name, value)

    def __repr__(self) -> str:
        return f"Checkpointed({self._layer!r})"

    def tree_flatten(self) -> tuple[tuple[Any, ...], Any]:
        """The layer's arrays; a layer that is no pytree is part of the structure."""
        if jax.tree_util.all_leaves([self._layer]):
            return (), (self._layer, self._mark)
        return (self._layer,), (None, self._mark)

    def tree_flatten_with_keys(self) -> tuple[tuple[Any, ...], Any]:
        """The same, the layer under the key `layer`."""
        children, fixed = self.tree_flatten()
        key = jax.tree_util.GetAttrKey("layer")
        return tuple((key, child) for child in children), fixed

    @classmethod
    def tree_unflatten(cls, fixed: Any, children: tuple[Any, ...]) -> Checkpointed:
        """The same with other arrays."""
        layer, mark = fixed
        return _made(children[0] if children else layer, mark)


def _made(layer: Any, mark: Marking) -> Checkpointed:
    made = object.__new__(Checkpointed)
    object.__setattr__(made, "_layer", layer)
    object.__setattr__(made, "_mark", mark)
    return made


def _fields_of(wrapper: Any) -> Any:
    return vars(wrapper)["_layer"]


def _around(wrapper: Any, layer: Any) -> Checkpointed:
    """The same options around another layer."""
    return _made(layer, vars(wrapper)["_mark"])

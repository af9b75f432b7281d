"""Arrays that are written by `.at[i].set(x, pred=...)`, as in Equinox's loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


class Buffer(eqx.Module):
    """An array whose rows are set, if a condition holds.

    Unlike Equinox's it may be read at any place and written twice: it is a plain array,
    with its derivative.
    """

    array: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The array's shape."""
        return self.array.shape

    @property
    def dtype(self) -> Any:
        """The array's type of elements."""
        return self.array.dtype

    @property
    def size(self) -> int:
        """The array's number of elements."""
        return self.array.size

    @property
    def at(self) -> _At:
        """Rows to be set, chosen by `[i]`."""
        return _At(self)

    def __getitem__(self, item: Any) -> Any:
        return self.array[item]


class _At(eqx.Module):
    buffer: Buffer

    def __getitem__(self, item: Any) -> _Rows:
        return _Rows(self.buffer, item)


class _Rows(eqx.Module):
    buffer: Buffer
    item: Any

    def get(self, **options: Any) -> Any:
        """These rows."""
        return self.buffer.array.at[self.item].get(**options)

    def set(self, x: Any, *, pred: Any = True, **options: Any) -> Buffer:
        """The buffer with these rows set, if `pred` holds."""
        array = self.buffer.array
        if pred is not True:
            x = jnp.where(pred, x, self.get(**options))
        return Buffer(array.at[self.item].set(x, **options))


def as_buffers(value: Any, chosen: Callable[[Any], Any] | None) -> Any:
    """A carry with the arrays chosen in it made buffers.

    Args:
        value: A pytree of arrays.
        chosen: From the carry to one node or several, of which every array is chosen.
    """
    if chosen is None:
        return value
    return eqx.tree_at(chosen, value, replace_fn=_wrapped)


def as_arrays(value: Any) -> Any:
    """A carry with the buffers in it made arrays again."""
    return jax.tree.map(_unwrapped, value, is_leaf=_is_buffer)


def like(value: Any, carry: Any) -> Any:
    """A carry of arrays with those made buffers that are in another, of the same form.

    A loop inside a loop is given buffers of the outer one, and hands them on.
    """
    made = lambda was, now: Buffer(now) if _is_buffer(was) else now  # noqa: E731
    return jax.tree.map(made, carry, value, is_leaf=_is_buffer)


def _is_buffer(node: Any) -> bool:
    return isinstance(node, Buffer)


def _wrapped(node: Any) -> Any:
    return jax.tree.map(Buffer, node)


def _unwrapped(node: Any) -> Any:
    return node.array if isinstance(node, Buffer) else node

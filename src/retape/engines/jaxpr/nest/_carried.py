"""What a loop carries, for an accelerator with all that steers it in one vector.

A loop on a GPU launches a kernel for each number that it carries and changes. So all
integers and truths of a state are one vector there, made by one kernel at the end of a
turn, and read by whatever follows from them:

    host form      pc  left  here  at[4]  slot[4]  fresh  x
    this form      [pc left here at slot fresh]           x

Numbers that nobody asks for, such as counts of what was done, are left out.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

State = dict[Any, Any]

_KINDS = frozenset({"bool", "int32", "int64"})


class Carried:
    """The order in which a loop carries a state.

    Args:
        state: One like those that are carried.
        together: Whether its integers are one vector.
        without: Numbers that are zero at every turn.
    """

    def __init__(
        self, state: State, *, together: bool, without: Collection[Any] = ()
    ) -> None:
        self.types = {k: jax.typeof(v) for k, v in state.items()}
        keys = sorted(state, key=str)
        self.without = [k for k in keys if k in without]
        steering = [k for k in keys if together and self._steers(k)]
        self.steering = [k for k in steering if k not in without]
        if len(self.steering) < 2:
            self.steering = []
        left_out = {*self.without, *self.steering}
        self.others = [k for k in keys if k not in left_out]

    def _steers(self, key: Any) -> bool:
        """Whether it is a number of ours, or one of the user's, or its snapshots."""
        aval = self.types[key]
        own = isinstance(key, str) or (isinstance(key, tuple) and key[0] == "snapshot")
        plain = str(aval.dtype) in _KINDS and aval.sharding.mesh.empty
        return plain and (not aval.shape or (own and len(aval.shape) == 1))

    def values(self, state: State) -> list[Any]:
        """What is carried of a state."""
        others = [state[k] for k in self.others]
        if not self.steering:
            return others
        kind = np.result_type(*(self.types[k].dtype for k in self.steering), np.int32)
        flat = [
            lax.reshape(lax.convert_element_type(state[k], kind), (self._size(k),))
            for k in self.steering
        ]
        return [lax.concatenate(flat, 0), *others]

    def state(self, values: Sequence[Any]) -> State:
        """The state of which that is carried."""
        zeros = {k: jnp.zeros(v.shape, v.dtype) for k, v in self._left_out()}
        if not self.steering:
            return dict(zip(self.others, values, strict=True)) | zeros
        vector, *others = values
        found = dict(zip(self.others, others, strict=True)) | zeros
        ends = np.cumsum([0, *map(self._size, self.steering)])
        for key, (begin, end) in zip(self.steering, pairwise(ends), strict=True):
            aval = self.types[key]
            part = lax.reshape(lax.slice(vector, (begin,), (end,)), aval.shape)
            found[key] = lax.convert_element_type(part, aval.dtype)
        return found

    def _left_out(self) -> list[tuple[Any, Any]]:
        return [(k, self.types[k]) for k in self.without]

    def _size(self, key: Any) -> int:
        return self.types[key].size

"""Whether every number in a tree is within a bound, told in one pass where that can be.

The sum of squares of an array is one pass over memory, without an array in between, and
none of its terms is negative. Rounding to nearest keeps the order of sums, so that
however it is added up it is never below the largest square:

    sum of squares <= bound**2     all magnitudes are within the bound, and none is NaN
    otherwise                      it is not known: the largest is looked for
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

from sys import float_info
from typing import Any

from retape.storage._trees._kinds import opaque
from retape.storage._trees._leaves import (
    PLAIN,
    is_array,
    is_number,
    is_of_framework,
    node_of,
)
from retape.storage._trees._magnitude import largest
from retape.storage._trees._tensors import as_numbers, has_fraction, is_tensor

_LEAST = {"d": 1e-150, "f": 1e-18}
"""Bounds whose squares are normal numbers: below them squares would be lost."""

_CONTAINERS = {tuple: iter, list: iter, dict: dict.values}


def is_within(tree: Any, bound: float) -> bool:
    """Tell whether all numbers with a fraction are finite, and not above a bound.

    Raises:
        StoreError: If there is something in the tree that no state may have.

    Examples:
        >>> is_within({"x": -2.5, "k": 7}, 2.5), is_within([1.0, float("nan")], 9.0)
        (True, False)
    """
    bound = min(bound, float_info.max)
    if is_array(tree):
        least = _LEAST.get(tree.dtype.char)
        # Half of it: so the rounding of the bound's square is of no account.
        if least is not None and bound >= least:
            if _sum_of_squares(tree) <= min(0.5 * bound * bound, 1e308):
                return True
    elif type(tree) is float:
        return -bound <= tree <= bound
    elif type(tree) in _CONTAINERS:
        return all(is_within(each, bound) for each in _CONTAINERS[type(tree)](tree))
    elif is_tensor(tree) and has_fraction(tree) and tree.device.type == "cpu":
        return is_within(as_numbers(tree), bound)
    return largest(tree) <= bound


def _sum_of_squares(array: Any) -> float:
    import numpy as np

    flat = array.reshape(-1)
    with np.errstate(all="ignore"):  # of the program's own numbers, none is changed
        # Not `dot`, whose threads wait for one another from 10,000 numbers on: on a
        # busy machine 64,000 took 7 ms of the processor, and so 0.04 (two cores).
        return float(np.einsum("i,i->", flat, flat))


def is_in_reach(tree: Any) -> bool:
    """Tell whether all of a tree can be read at once, without a wait for a device.

    Examples:
        >>> is_in_reach({"x": (1.0, 2)})
        True
    """
    if type(tree) in PLAIN or is_array(tree) or is_number(tree):
        return True
    if is_tensor(tree):
        return tree.device.type == "cpu"
    # An array of JAX's may be on its way; an object of the user's makes its arrays.
    if is_of_framework(tree) or opaque(type(tree)) is not None:
        return False
    return all(map(is_in_reach, node_of(tree).parts))

"""Which function of NumPy is which of ours, by its name and by what it is given.

What is given is a text: `1` and `2` for arrays of so many dimensions, `n` for a
number, `i` for an int. A new function is one row here, and its text in a module beside.
"""

from collections.abc import Callable
from typing import Any

from retape.engines.vlad.python.library import _rows, _tables

WRITTEN: dict[str, dict[str, Callable[..., Any]]] = {
    "mean": {"1": _rows.mean, "2": _tables.mean_of_table},
    "max": {"1": _rows.largest, "2": _tables.largest_of_table},
    "min": {"1": _rows.smallest, "2": _tables.smallest_of_table},
    "prod": {"1": _rows.product},
    "argmax": {"1": _rows.place_of_largest},
    "argmin": {"1": _rows.place_of_smallest},
    "cumsum": {"1": _rows.sums},
    "cumprod": {"1": _rows.products},
    "var": {"1": _rows.variance},
    "std": {"1": _rows.deviation},
    "norm": {"1": _rows.norm, "2": _tables.norm_of_table},
    "diff": {"1": _rows.differences},
    "outer": {"11": _rows.outer, "nn": _rows.outer_of_numbers},
    "append": {"11": _rows.joined},
    "linspace": dict.fromkeys(("nni", "nii", "ini", "iii"), _rows.spaced),
    "eye": {"i": _tables.unit_table},
    "identity": {"i": _tables.unit_table},
    "trace": {"2": _tables.trace},
    "diagonal": {"2": _tables.diagonal},
    "transpose": {"2": _tables.transposed},
    "ravel": {"2": _tables.flat},
    "flatten": {"2": _tables.flat},
    "solve": {"21": _tables.solution, "22": _tables.solutions},
    "inv": {"2": _tables.inverse},
    "sum by 0": {"2": _tables.sums_of_columns},
    "sum by 1": {"2": _tables.sums_of_rows},
    "mean by 0": {"2": _tables.means_of_columns},
    "mean by 1": {"2": _tables.means_of_rows},
    "max by 0": {"2": _tables.largest_of_columns},
    "max by 1": {"2": _tables.largest_of_rows},
    "min by 0": {"2": _tables.smallest_of_columns},
    "min by 1": {"2": _tables.smallest_of_rows},
}

BY_ITEM: dict[str, Callable[..., Any]] = {
    "maximum": _rows.larger,
    "minimum": _rows.smaller,
    "clip": _rows.clipped,
    "where": _rows.chosen,
}
"""What is done item by item, where numbers stand for arrays that are full of them."""

BY_AXIS = frozenset("sum mean max min".split())
"""What takes an `axis`; of an array of one dimension that is the only one."""

METHODS = frozenset(
    "mean max min prod argmax argmin cumsum cumprod var std trace diagonal transpose "
    "ravel flatten sum dot copy clip".split()
)

VIEWS = frozenset("transpose ravel diagonal T".split())
"""What NumPy gives may be another name of its argument."""

WRITES = frozenset(
    f"{how}_{part}"
    for how in ("set", "fill")
    for part in ("part", "row", "column", "block")
)
"""Functions that are given their first argument for good, and write to it in place."""

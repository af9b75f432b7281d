"""Which function of NumPy is which of ours, by its name and by what it is given.

What is given is a text: `1` and `2` for arrays of so many dimensions, `n` for a
number, `i` for an int. A new function is one row here, and its text in a module beside.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from retape.engines.vlad.python.library import _rows, _tables

WRITTEN: dict[str, dict[str, Callable[..., Any]]] = {
    "mean": {"1": _rows.mean},
    "max": {"1": _rows.largest},
    "min": {"1": _rows.smallest},
    "prod": {"1": _rows.product},
    "argmax": {"1": _rows.place_of_largest},
    "argmin": {"1": _rows.place_of_smallest},
    "cumsum": {"1": _rows.sums},
    "cumprod": {"1": _rows.products},
    "var": {"1": _rows.variance},
    "std": {"1": _rows.deviation},
    "norm": {"1": _rows.norm},
    "diff": {"1": _rows.differences},
    "outer": {"11": _rows.outer, "nn": _rows.outer_of_numbers},
    "append": {"11": _rows.joined},
    "linspace": dict.fromkeys(("nni", "nii", "ini", "iii"), _rows.spaced),
    "arange": {
        **dict.fromkeys(("i", "n"), _rows.counted),
        **dict.fromkeys(("ii", "nn", "in", "ni"), _rows.counted_from),
        **{a + b + c: _rows.counted_by for a in "in" for b in "in" for c in "in"},
    },
    "eye": {"i": _tables.unit_table},
    "identity": {"i": _tables.unit_table},
    "trace": {"2": _tables.trace},
    "diagonal": {"2": _tables.diagonal},
    "transpose": {"2": _tables.transposed},
    "solve": {"21": _tables.solution, "22": _tables.solutions},
    "inv": {"2": _tables.inverse},
}

BY_ITEM: dict[str, Callable[..., Any]] = {
    "maximum": np.maximum,
    "minimum": np.minimum,
    "clip": _rows.clipped,
    "hypot": _rows.hypotenuse,
    "where": _rows.chosen,
}
"""What is done with an item of each, where a number is each item of an array.

Of numbers alone it is done with them.
"""

OVER_AXIS = frozenset("sum mean max min prod var std norm".split())
"""What makes a number of each row along an `axis`, or of all items."""

ALONG_AXIS = frozenset("cumsum cumprod".split())
"""What makes a row of each row along an `axis`, or of all items."""

OF_ALL = OVER_AXIS | ALONG_AXIS | {"argmax", "argmin"}
"""What is of all items, one row after another, if no axis is given."""

METHODS = frozenset(
    "mean max min prod argmax argmin cumsum cumprod var std trace diagonal transpose "
    "ravel flatten sum dot copy clip reshape".split()
)

VIEWS = frozenset("transpose ravel diagonal reshape T".split())
"""What NumPy gives may be another name of its argument."""

WRITES = frozenset(
    "set_part_of_one fill_part_of_one set_part fill_part with_room with_number "
    "with_array".split()
)
"""Functions that are given their first argument for good, and write to it in place."""

"""Which functions of NumPy are compiled of arrays, and which of ours each of them is.

A new function is one row here, and its text in a module beside.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from retape.engines.vlad.python.library import _rows, _tables

_OurText = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class ArrayFunction:
    """A function of NumPy.

    Attributes:
        texts: How it is written in the language, by what it is given: `1` and `2` for
            arrays of so many dimensions, `n` for a number, `i` for an int.
        by_item: What is done with an item of each, where a number is each item of an
            array; of numbers alone it is done with them.
        count: How many arguments it takes, if there are no texts.
        makes: Along an `axis`: a number, or a row, of each row. Without one it is of
            all items, one row after another.
        is_method: Whether arrays have it, too.
        is_view: Whether what NumPy gives may be another name of its argument.
    """

    texts: dict[str, _OurText] = field(default_factory=dict)
    by_item: _OurText | None = None
    count: int | None = None
    makes: Literal["number", "row", "place"] | None = None
    is_method: bool = False
    is_view: bool = False


def _reduced(
    text: _OurText, makes: Literal["number", "row", "place"], *, is_method: bool = True
) -> ArrayFunction:
    return ArrayFunction({"1": text}, makes=makes, is_method=is_method)


ARRAY_FUNCTIONS: dict[str, ArrayFunction] = {
    # made anew
    **dict.fromkeys(("zeros", "ones", "empty"), ArrayFunction(count=1)),
    **dict.fromkeys(("zeros_like", "ones_like", "empty_like"), ArrayFunction(count=1)),
    **dict.fromkeys(("full", "full_like"), ArrayFunction(count=2)),
    **dict.fromkeys(("array", "asarray"), ArrayFunction(count=1)),
    "copy": ArrayFunction(count=1, is_method=True),
    "eye": ArrayFunction({"i": _tables.unit_table}),
    "identity": ArrayFunction({"i": _tables.unit_table}),
    "linspace": ArrayFunction(
        dict.fromkeys(("nni", "nii", "ini", "iii"), _rows.spaced)
    ),
    "arange": ArrayFunction(
        {
            **dict.fromkeys(("i", "n"), _rows.counted),
            **dict.fromkeys(("ii", "nn", "in", "ni"), _rows.counted_from),
            **{a + b + c: _rows.counted_by for a in "in" for b in "in" for c in "in"},
        }
    ),
    # of rows, or of all items
    "sum": ArrayFunction(count=1, makes="number", is_method=True),
    "mean": _reduced(_rows.mean, "number"),
    "max": _reduced(_rows.largest, "number"),
    "min": _reduced(_rows.smallest, "number"),
    "prod": _reduced(_rows.product, "number"),
    "var": _reduced(_rows.variance, "number"),
    "std": _reduced(_rows.deviation, "number"),
    "norm": _reduced(_rows.norm, "number", is_method=False),
    "cumsum": _reduced(_rows.sums, "row"),
    "cumprod": _reduced(_rows.products, "row"),
    "argmax": _reduced(_rows.place_of_largest, "place"),
    "argmin": _reduced(_rows.place_of_smallest, "place"),
    # item by item
    "maximum": ArrayFunction(by_item=np.maximum, count=2),
    "minimum": ArrayFunction(by_item=np.minimum, count=2),
    "hypot": ArrayFunction(by_item=math.hypot, count=2),
    "clip": ArrayFunction(by_item=_rows.clipped, count=3, is_method=True),
    "where": ArrayFunction(by_item=_rows.chosen, count=3),
    "power": ArrayFunction(count=2),
    "arctan": ArrayFunction(count=1),
    "arctan2": ArrayFunction(count=2),
    # of other shapes
    "ravel": ArrayFunction(count=1, is_method=True, is_view=True),
    "flatten": ArrayFunction(count=1, is_method=True),
    "reshape": ArrayFunction(is_method=True, is_view=True),
    "diff": ArrayFunction({"1": _rows.differences}),
    "append": ArrayFunction({"11": _rows.joined}),
    "diagonal": ArrayFunction({"2": _tables.diagonal}, is_method=True, is_view=True),
    "transpose": ArrayFunction({"2": _tables.transposed}, is_method=True, is_view=True),
    # linear algebra
    "dot": ArrayFunction(count=2, is_method=True),
    "outer": ArrayFunction({"11": _rows.outer, "nn": _rows.outer_of_numbers}),
    "trace": ArrayFunction({"2": _tables.trace}, is_method=True),
    "solve": ArrayFunction({"21": _tables.solution, "22": _tables.solutions}),
    "inv": ArrayFunction({"2": _tables.inverse}),
}
"""By their names."""

WITH_AXIS = [n for n, row in ARRAY_FUNCTIONS.items() if row.makes in ("number", "row")]
"""Those that take an `axis`."""

METHODS = sorted(name for name, row in ARRAY_FUNCTIONS.items() if row.is_method)

WRITES = frozenset(
    "set_part_of_one fill_part_of_one set_part fill_part with_room with_number "
    "with_array".split()
)
"""Functions that are given their first argument for good, and write to it in place."""

"""Which functions of Python, `math` and NumPy are compiled, and what each of them is.

A new function is one row here, and its text in a module beside. What is no text and no
operator is a rule of the translator's (`expressions/_library_calls`).
"""

import builtins
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np

from retape.engines.vlad.operators._table import ATAN, IS_FINITE, OPERATORS
from retape.engines.vlad.python.library import _numbers, _parts, _rows

_Written = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class LibraryFunction:
    """A function that compiled functions may call.

    Attributes:
        texts: How it is written in the language, by what it is given: `1` and `2` for
            arrays of so many dimensions, `i` for an int, `f` for a float, `n` for both,
            `l` for a list of numbers.
        operator: The operator of the core that it is.
        rule: The rule of the translator that compiles it.
        name: Its last name, for messages.
        by_item: Whether it is of numbers and, item by item, of arrays; a number is then
            each item of one.
        raises: Whether its operator raises, as those of `math` do.
        count: How many arguments it takes, where no text tells.
        makes: Along an `axis`: a number, which is a float, or a row, of each row.
            Without one it is of all items, one row after another.
        is_method: Whether arrays have it, too.
        is_view: Whether what NumPy gives may be another name of its argument.
        takes_ints: Whether an array of ints, or of bools, is one of its arguments. Its
            `rule` tells them apart, which no text does.
        takes_bools: Whether a bool is the int that it is.
        is_of_arrays: Whether it is NumPy's, which makes an array of a list.
    """

    texts: dict[str, _Written] = field(default_factory=dict)
    operator: str = ""
    rule: str = ""
    name: str = ""
    by_item: bool = False
    raises: bool = False
    count: int | None = None
    makes: Literal["number", "row", "place"] | None = None
    is_method: bool = False
    is_view: bool = False
    takes_ints: bool = False
    takes_bools: bool = False
    is_of_arrays: bool = False

    @property
    def takes_axis(self) -> bool:
        return self.makes in ("number", "row")

    def text_for(self, kinds: str) -> _Written | None:
        """The text for arguments of these kinds, a letter for each."""
        return next(
            (t for takes, t in self.texts.items() if _are_taken(takes, kinds)), None
        )


def _are_taken(takes: str, kinds: str) -> bool:
    """Whether arguments are what a text takes: an int is a number."""
    return len(takes) == len(kinds) and all(
        given == wanted or (wanted == "n" and given in "if")
        for wanted, given in zip(takes, kinds, strict=True)
    )


_ELEMENTARY = [name for name, row in OPERATORS.items() if row.is_elementary]
_BY_NUMPY_NAME = {
    "absolute": "abs",
    **{f"arc{name[1:]}": name for name in _ELEMENTARY if name.startswith("a")},
    **{name: name for name in _ELEMENTARY},
}
"""Operators by the names that NumPy has for them, in some release or in none."""


def _scalar(
    *, texts: dict[str, _Written] | None = None, **facts: Any
) -> LibraryFunction:
    return LibraryFunction(texts or {}, takes_bools=True, **facts)


def _by_item(text: _Written, count: int, *, is_method: bool = False) -> LibraryFunction:
    return LibraryFunction(
        {"n" * count: text}, by_item=True, count=count, is_method=is_method
    )


def _reduced(text: _Written, makes: Any, **facts: Any) -> LibraryFunction:
    return LibraryFunction({"1": text}, makes=makes, **{"is_method": True, **facts})


_OF_PYTHON: dict[str, LibraryFunction] = {
    "abs": _scalar(operator="abs", count=1),
    "bool": _scalar(texts={"n": _numbers.is_true}),
    "float": _scalar(rule="float", count=1),
    "int": _scalar(texts={"i": _numbers.itself, "n": _numbers.truncated}),
    "len": LibraryFunction(rule="len", count=1, takes_ints=True),
    "list": LibraryFunction(rule="list", count=1, takes_ints=True),
    "max": LibraryFunction({"l": _parts.largest_of}, rule="max"),
    "min": LibraryFunction({"l": _parts.smallest_of}, rule="min"),
    "pow": _scalar(rule="pow", count=2),
    "range": LibraryFunction(rule="range"),
    "sum": LibraryFunction({"l": _parts.total_of}, rule="sum", count=1),
}

_OF_MATH: dict[str, LibraryFunction] = {
    **{
        name: _scalar(operator=name, raises=True, count=1)
        for name in _ELEMENTARY
        if hasattr(math, name)
    },
    "atan": _scalar(texts={"n": _numbers.angle}),
    "atan2": _scalar(operator=ATAN, count=2),
    "ceil": _scalar(texts={"n": _numbers.ceiling}),
    "degrees": _scalar(texts={"n": _numbers.degrees}),
    "fabs": _scalar(operator="abs", raises=True, count=1),
    "floor": _scalar(rule="rounded_down", count=1),
    "hypot": _scalar(texts={"nn": _numbers.hypotenuse}),
    "isfinite": _scalar(operator=IS_FINITE, count=1),
    "isnan": _scalar(texts={"n": _numbers.is_no_number}),
    "log": _scalar(rule="log", operator="log", raises=True),
    "pow": _scalar(texts={"nn": _numbers.to_the_power}),
    "radians": _scalar(texts={"n": _numbers.radians}),
    "trunc": _scalar(texts={"i": _numbers.itself, "n": _numbers.truncated}),
}

_OF_NUMPY: dict[str, LibraryFunction] = {
    **{
        name: LibraryFunction(operator=operator, count=1)
        for name, operator in _BY_NUMPY_NAME.items()
        if hasattr(np, name)
    },
    # made anew
    **dict.fromkeys(("zeros", "ones", "empty"), LibraryFunction(rule="full", count=1)),
    **dict.fromkeys(
        ("zeros_like", "ones_like", "empty_like"),
        LibraryFunction(rule="full_like", count=1),
    ),
    "full": LibraryFunction(rule="full", count=2),
    "full_like": LibraryFunction(rule="full_like", count=2),
    **dict.fromkeys(
        ("array", "asarray"), LibraryFunction(rule="array", count=1, takes_ints=True)
    ),
    "copy": LibraryFunction(rule="copy", count=1, is_method=True, takes_ints=True),
    "eye": LibraryFunction({"i": _rows.unit_table}),
    "identity": LibraryFunction({"i": _rows.unit_table}),
    "linspace": LibraryFunction({"nni": _rows.spaced}),
    "arange": LibraryFunction(
        {"n": _rows.counted, "nn": _rows.counted_from, "nnn": _rows.counted_by}
    ),
    # of rows, or of all items
    "sum": _reduced(_rows.sum_of_row, "number", rule="sum", count=1),
    "mean": _reduced(_rows.mean, "number"),
    "max": _reduced(_rows.largest, "number"),
    "min": _reduced(_rows.smallest, "number"),
    "prod": _reduced(_rows.product, "number"),
    "var": _reduced(_rows.variance, "number"),
    "std": _reduced(_rows.deviation, "number"),
    "linalg.norm": _reduced(_rows.norm, "number", is_method=False),
    "cumsum": _reduced(_rows.sums, "row"),
    "cumprod": _reduced(_rows.products, "row"),
    "argmax": _reduced(_rows.place_of_largest, "place"),
    "argmin": _reduced(_rows.place_of_smallest, "place"),
    # item by item
    "maximum": _by_item(_numbers.larger, 2),
    "minimum": _by_item(_numbers.smaller, 2),
    "hypot": _by_item(_numbers.hypotenuse, 2),
    "arctan": _by_item(_numbers.angle, 1),
    "arctan2": _by_item(_numbers.angle_of, 2),
    "clip": _by_item(_numbers.clipped, 3, is_method=True),
    "where": replace(_by_item(_numbers.chosen, 3), takes_ints=True),
    "power": LibraryFunction(rule="power", count=2),
    # of other shapes
    "ravel": LibraryFunction(rule="ravel", count=1, is_method=True, is_view=True),
    "reshape": LibraryFunction(rule="reshape", is_method=True, is_view=True),
    "diff": LibraryFunction({"1": _rows.differences}),
    "append": LibraryFunction({"11": _rows.joined}),
    "diagonal": LibraryFunction({"2": _rows.diagonal}, is_method=True, is_view=True),
    "transpose": LibraryFunction({"2": _rows.transposed}, is_method=True, is_view=True),
    # linear algebra
    "dot": LibraryFunction(rule="dot", count=2, is_method=True),
    "outer": LibraryFunction({"11": _rows.outer, "ff": _rows.outer_of_numbers}),
    "trace": LibraryFunction({"2": _rows.trace}, is_method=True),
    "linalg.solve": LibraryFunction({"21": _rows.solution, "22": _rows.solutions}),
    "linalg.inv": LibraryFunction({"2": _rows.inverse}),
}


def _with_names(
    functions: dict[str, LibraryFunction], *, arrays: bool
) -> dict[str, LibraryFunction]:
    """The rows, each with its last name; `np.array` takes lists as they are."""
    return {
        name: replace(
            row,
            name=name.rpartition(".")[2],
            is_of_arrays=arrays and row.rule != "array",
        )
        for name, row in functions.items()
    }


_ARRAYS = _with_names(_OF_NUMPY, arrays=True)


def _found() -> dict[Any, LibraryFunction]:
    """The rows by the objects that Python has under their names."""
    of_numpy = {**_ARRAYS, "amax": _ARRAYS["max"], "amin": _ARRAYS["min"]}
    found: dict[Any, LibraryFunction] = {}
    for module, rows in (
        (builtins, _with_names(_OF_PYTHON, arrays=False)),
        (math, _with_names(_OF_MATH, arrays=False)),
        (np, of_numpy),
    ):
        for name, row in rows.items():
            value: Any = module
            for part in name.split("."):
                value = getattr(value, part)
            found[value] = row
    return {**found, np.float64: found[float]}


FUNCTIONS = _found()
"""By what Python calls."""

METHODS = {
    **{row.name: row for row in _ARRAYS.values() if row.is_method},
    "flatten": LibraryFunction(
        rule="flatten", name="flatten", count=1, is_of_arrays=True
    ),
}
"""Of arrays, by name."""

VIEWS = frozenset(row.name for row in _ARRAYS.values() if row.is_view)
"""What may give another name of an array, as a function or as a method."""


def known_function(value: Any) -> LibraryFunction | None:
    """The row of a function; `None` for one that is not compiled.

    Examples:
        >>> known_function(math.tan).operator, known_function(print)
        ('tan', None)
    """
    try:
        return FUNCTIONS.get(value)
    except TypeError:  # not hashable
        return None


UNFAILING = frozenset(
    "span part_of_one set_part_of_one fill_part_of_one part set_part fill_part".split()
)
"""Functions without a fault to be told where they are called: one for all calls.

A program of 20 lines `a = np.sin(a) * c + a[::-1]` had 140 functions, and its gradient
took the C compiler 4 s."""

WRITES = frozenset(
    "set_part_of_one fill_part_of_one set_part fill_part with_room".split()
)
"""Functions that are given their first argument for good, and write to it in place."""

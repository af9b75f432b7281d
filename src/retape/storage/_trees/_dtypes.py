"""Types of numbers as JSON and back."""

# A description of a type is of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import importlib
from typing import Any

import numpy as np


def dtype_to_json(dtype: np.dtype[Any]) -> Any:
    """NumPy's own description of a type."""
    return np.lib.format.dtype_to_descr(dtype)


def dtype_from_json(described: Any) -> np.dtype[Any]:
    """The type that was described.

    Raises:
        ValueError: If the description is none.
    """
    return np.lib.format.descr_to_dtype(_tuples(described))


def registered_dtype(name: str) -> np.dtype[Any]:
    """A number type by its name; those of `ml_dtypes` exist once that is loaded."""
    try:
        return np.dtype(name)
    except TypeError:
        importlib.import_module("ml_dtypes")
        return np.dtype(name)


def _tuples(described: Any) -> Any:
    """JSON has made lists of the tuples in a description of a structured type."""
    if not isinstance(described, list):
        return described
    return [
        tuple(_tuples(part) if i == 1 else _shape(part) for i, part in enumerate(field))
        for field in described
    ]


def _shape(part: Any) -> Any:
    return tuple(part) if isinstance(part, list) else part

"""The label of a run in a durable store: the program and its inputs, on any mesh."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np

from retape.engines.jaxpr.api._gradient_problem import GradientProblem
from retape.storage import fingerprint

_MESH_SHOWN = re.compile(r"\bMesh\((?:[^()]|\([^()]*\))*\)")


def label_of(problem: GradientProblem) -> str:
    """A digest of a program and its inputs.

    A run that was begun on one mesh may be gone on with on another, by another number
    of processes. So how a mesh looks is no part of it.
    """
    program = _MESH_SHOWN.sub("Mesh", str(problem.jaxpr))
    found = blake2b(program.encode(), digest_size=8)
    for value in problem.values:
        found.update(fingerprint(_plain_array(value)))
    return found.hexdigest()


def _plain_array(value: Any) -> Any:
    """A plain array, for the kind of array that JAX holds constants in."""
    return np.asarray(value) if isinstance(value, np.ndarray) else value


def is_spread(values: Iterable[object]) -> bool:
    """Tell whether some array has parts in other processes."""
    return not all(getattr(value, "is_fully_addressable", True) for value in values)

"""The names at a place in a source."""

from __future__ import annotations

from pathlib import Path

import pytest

from retape.engines.jaxpr.api.health._source_names import Place, names_made, names_read

SOURCE = """\
import jax.numpy as jnp
from jax import lax as la


def step(y, x, model):
    z, (w, model.a) = jnp.sqrt(
        y) + la.sin(y * x), 1
    z += model.b(x)
    return (lambda q: jnp.log(q))(z)
"""


def place(tmp_path: Path, text: str) -> Place:
    """Where a part of the source stands."""
    path = tmp_path / "program.py"
    path.write_text(SOURCE)
    before = SOURCE[: SOURCE.index(text)].split("\n")
    lines = text.split("\n")
    column = len(lines[-1]) + (len(before[-1]) if len(lines) == 1 else 0)
    end = len(before) + len(lines) - 1
    return Place(str(path), len(before), len(before[-1]), end, column)


@pytest.mark.parametrize(
    ("text", "read", "made"),
    [
        ("jnp.sqrt(\n        y)", ("y",), ("model.a", "w", "z")),
        ("y * x", ("x", "y"), ("model.a", "w", "z")),
        ("model.b(x)", ("model", "x"), ("z",)),
        ("jnp.log(q)", ("q",), ()),
        ("def step", (), ()),
    ],
)
def test_names_at_a_place(
    tmp_path: Path, text: str, read: tuple[str, ...], made: tuple[str, ...]
) -> None:
    there = place(tmp_path, text)
    assert (names_read(there), names_made(there)) == (read, made)


@pytest.mark.parametrize("source", [None, "def (", "\0"])
def test_a_source_that_cannot_be_read_names_nothing(
    tmp_path: Path, source: str | None
) -> None:
    path = tmp_path / "other.py"
    if source is not None:
        path.write_text(source)
    nowhere = Place(str(path), 1, 0, 1, 3)
    assert names_read(nowhere) == names_made(nowhere) == ()

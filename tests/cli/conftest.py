"""A file with functions of JAX, which imports another one beside it."""

import pytest

FILE = """
import jax, jax.numpy as jnp
from beside import FACTOR

def halve(x):
    return jnp.sum(jax.lax.while_loop(lambda x: x[0] > 1, lambda x: FACTOR * x, x))

def scaled(x, n):
    return n * jnp.sum(x)

NUMBER = 3
"""


@pytest.fixture
def where(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "beside.py").write_text("FACTOR = 0.5\n")
    (tmp_path / "model.py").write_text(FILE)
    return tmp_path / "model.py"

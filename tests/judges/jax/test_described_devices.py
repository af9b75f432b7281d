"""Whether something fits a device that is not here.

The device's compiler is no part of the tests' environment (600 MB), so what it says is
printed by `benchmarks/accelerators`. Here is what is asked of a user.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, NamedSharding, PartitionSpec

import retape
import retape.jax
from retape.cli import main

ASKS = [retape.jax.advise, retape.jax.explain]
X = jax.ShapeDtypeStruct((64, 64), jnp.float32)


def loss(x: Any) -> Any:
    layer = lambda h, _: (jnp.tanh(h @ x), None)  # noqa: E731
    return jnp.sum(jax.lax.scan(layer, x, length=20)[0])


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "devices"
    monkeypatch.setenv("RETAPE_DEVICES", str(folder))
    return folder


GPUS = "jax-cuda13-plugin==" + jax.__version__
COMPILERS = dict.fromkeys(["h100", "H200", "a100", "l4"], GPUS) | {"v5e": "'libtpu=="}


@pytest.mark.parametrize("name", COMPILERS)
@pytest.mark.parametrize("ask", ASKS)
def test_what_is_lacking_is_said_with_the_line_to_type(
    ask: Callable[..., Any], name: str, nowhere: Path
) -> None:
    with pytest.raises(retape.MissingPackageError) as caught:
        ask(loss, X, device=name)
    line = f"pip install --no-deps --target {nowhere} "
    assert line in str(caught.value)
    assert f"{line}{COMPILERS[name]}" in str(caught.value)


@pytest.mark.parametrize("name", ["h1000", "", 3])
@pytest.mark.parametrize("ask", ASKS)
def test_an_unknown_device_is_refused_with_those_that_are_known(
    ask: Callable[..., Any], name: Any
) -> None:
    with pytest.raises(retape.PlanError, match="'h100' or 'h200' or .* or 'v5e'"):
        ask(loss, X, device=name)


@pytest.mark.parametrize("ask", ASKS)
def test_a_mesh_of_more_devices_than_there_are_is_refused(
    ask: Callable[..., Any],
) -> None:
    spread = NamedSharding(AbstractMesh((1000,), ("x",)), PartitionSpec())
    there = jax.ShapeDtypeStruct(X.shape, X.dtype, sharding=spread)
    with pytest.raises(retape.UnsupportedError, match="over 1000 devices, and 1 are"):
        ask(loss, there, memory="1 MB")


def test_without_a_device_the_memory_has_to_be_said() -> None:
    with pytest.raises(retape.PlanError, match="memory"):
        retape.jax.advise(loss, X)


def test_without_a_description_nothing_is_told_of_kernels() -> None:
    found = retape.jax.advise(lambda x: jnp.sum(x**2), X, memory="1 MB")
    assert found.device is None
    assert {c.kernels for c in found.candidates} == {None}
    assert "kernels" not in str(found)


# The command --------------------------------------------------------------------------

PROBLEM = """
import jax, jax.numpy as jnp
def loss(w, x): return jnp.sum(jnp.tanh(x @ w))
def problem(): return loss, jnp.ones((8, 8)), jnp.ones((4, 8))
def nothing(): return None
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    (tmp_path / "model.py").write_text(PROBLEM)
    return str(tmp_path / "model.py")


@pytest.mark.parametrize("arguments", [["problem"], ["loss", "f32[8,8]", "f32[4,8]"]])
def test_the_command_prints_what_advise_says(
    arguments: list[str], file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *types = arguments
    assert main(["fits", f"{file}:{name}", *types, "--memory", "1 MB"]) == 0
    assert "It fits as it is" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing", "--memory", "1 MB"], "return loss, weights"),
        (["problem"], "--device"),
        (["problem", "--device", "h1000"], "'h100'"),
    ],
)
def test_the_command_says_what_to_do(
    arguments: list[str], says: str, file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name, *options = arguments
    assert main(["fits", f"{file}:{name}", *options]) == 1
    assert says in capsys.readouterr().err

"""Searches for a budget tell what they compile, to whoever asked."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from retape.jax import policies

W = np.eye(48) * 0.5


def patience(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """How long a search goes on before it writes a line."""
    monkeypatch.setattr("retape.engines.jaxpr.xla._search_progress._PATIENCE", seconds)
    monkeypatch.setattr("retape.engines.jaxpr.xla._search_progress._EVERY", 0.01)


def layers(w: Any) -> Any:
    for _ in range(6):
        w = jnp.tanh(jnp.sin(w @ w))
    return jnp.sum(w)


def looped(w: Any) -> Any:
    turn = lambda w: jnp.tanh(jnp.sin(w @ w) + 1.1 * w)  # noqa: E731
    return jnp.sum(jax.lax.while_loop(lambda w: w[0, 0] < 0.9, turn, w))


def by_policy() -> None:
    marked = retape.jax.checkpoint(layers, policy=policies.within("150 kB"))
    jax.grad(marked)(W)


def by_plan() -> None:
    retape.jax.grad(looped, plan=retape.within("220 kB"))(W)


def by_planner() -> None:
    retape.jax.advise(layers, W, memory="300 kB")


SEARCHES: dict[str, Callable[[], None]] = {
    "policy": by_policy,
    "plan": by_plan,
    "planner": by_planner,
}


@pytest.mark.slow
@pytest.mark.parametrize("search", SEARCHES)
def test_each_program_is_told(search: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of all three kinds of search, before the first program and after each."""
    told: list[Any] = []
    with retape.jax.search_progress(told.append):
        SEARCHES[search]()
    assert [t.compiled for t in told] == list(range(len(told)))
    assert len(told) > 1
    assert told[0].bytes is None and all(t.bytes for t in told[1:])
    assert sorted(t.seconds for t in told) == [t.seconds for t in told]
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_nobody_is_told_who_did_not_ask(capsys: pytest.CaptureFixture[str]) -> None:
    told: list[Any] = []
    with retape.jax.search_progress(told.append):
        pass
    by_policy()
    assert not told and capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_the_inner_one_is_told_and_an_error_ends_it() -> None:
    outer: list[Any] = []
    inner: list[Any] = []
    with retape.jax.search_progress(outer.append):
        with pytest.raises(retape.BudgetError):
            with retape.jax.search_progress(inner.append):
                retape.jax.advise(layers, W, memory="1 kB")
        by_policy()
    assert inner[-1].compiled >= 1 and outer[-1].compiled >= 1


@pytest.mark.slow
def test_a_long_one_writes_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Renewed while a program is compiled, and left standing with the last count."""
    patience(monkeypatch, 0.0)
    with retape.jax.search_progress():
        by_policy()
    written = capsys.readouterr().err
    assert written.startswith("\rretape: search, 0 compiled, ")
    assert written.count("\n") == 1 and " compiled, " in written.rsplit("\r", 1)[1]
    assert "search, 0 compiled" not in written.rsplit("\r", 1)[1]


@pytest.mark.slow
def test_a_line_ends_with_its_search_and_without_its_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    patience(monkeypatch, 0.0)
    closed = io.StringIO()
    closed.close()
    monkeypatch.setattr("sys.stderr", closed)
    before = threading.active_count()
    with retape.jax.search_progress():
        by_policy()
    assert threading.active_count() == before


@pytest.mark.slow
def test_a_short_one_writes_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    patience(monkeypatch, 1000.0)
    with retape.jax.search_progress():
        by_policy()
    assert capsys.readouterr() == ("", "")

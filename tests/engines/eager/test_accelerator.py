"""The compiled recorder gives the bits of the Python one, and is really used."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from programs import PROGRAMS
from test_programs import assert_same, least, outcome

from retape import torch as retape_torch
from retape._errors import UnsupportedError
from retape.engines.eager import _native
from retape.engines.eager._recorder import Recorder


@pytest.fixture
def accelerated() -> Iterator[None]:
    retape_torch.accelerate()
    yield
    retape_torch.accelerate(False)


@pytest.mark.usefixtures("accelerated")
@pytest.mark.parametrize("name", list(PROGRAMS))
def test_gradients_are_exact_when_accelerated(name: str) -> None:
    program = PROGRAMS[name]
    plain = outcome(program, contextlib.nullcontext())
    for memory in ("1GB", 2 * least(program)):
        assert_same(plain, outcome(program, retape_torch.recompute(memory=memory)))
    assert_same(plain, outcome(program, retape_torch.recompute(snapshots=3, stage=6)))


def chain(steps: int) -> tuple[torch.Tensor, object]:
    w = torch.full((4, 4), 0.9, requires_grad=True)
    with retape_torch.recompute(memory=20_000) as run:
        h = torch.ones(4, 4)
        for _ in range(steps):
            h = torch.tanh(h * w) * 2
        loss = h.sum()
    loss.backward()
    assert w.grad is not None
    return w.grad, run.report


def test_both_recorders_do_the_same_work() -> None:
    python, report = chain(300)
    retape_torch.accelerate()
    compiled, same = chain(300)
    retape_torch.accelerate(False)
    assert torch.equal(python, compiled)
    assert report == same


@pytest.mark.usefixtures("accelerated")
def test_repeated_calls_do_not_reach_python(monkeypatch: pytest.MonkeyPatch) -> None:
    reached: list[object] = []
    original = Recorder.__torch_dispatch__

    def spy(self: Recorder, func: object, *rest: object) -> object:
        reached.append(func)
        return original(self, func, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Recorder, "__torch_dispatch__", spy)
    chain(300)
    assert len(reached) < 10


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UnsupportedError, match="needs a C\\+\\+ compiler and none"):
        _native._command()


def test_a_failing_compiler_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("RETAPE_CACHE", str(tmp_path))
    with pytest.raises(UnsupportedError, match="C\\+\\+ compiler `false` failed"):
        _native._build()

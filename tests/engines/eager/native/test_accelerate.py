"""The compiled recorder gives the bits of the Python one, and is really used."""

import contextlib
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from retape import torch as retape_torch
from retape._errors import UnsupportedError
from retape.engines.eager._errors import MutationError
from retape.engines.eager.loop._recorder import LoopRecorder
from retape.engines.eager.native import _accelerate as _native
from retape.engines.eager.plan._learned import forget_lessons
from retape.engines.eager.record._dispatch_mode import Recorder
from retape.engines.eager.trace._run import Run
from tests.engines.eager.api.test_programs import assert_same, least, outcome
from tests.engines.eager.loop.test_loop import EXACT
from tests.engines.eager.support.programs import PROGRAMS


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
    forget_lessons()  # else the second run has a plan
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


def test_a_failing_compiler_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("RETAPE_CACHE", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(UnsupportedError, match="C\\+\\+ compiler made .*`false`"):
        _native.build()


def mixed() -> tuple[list[torch.Tensor], object]:
    """Steps that compiled code runs again, between steps that Python has to."""
    torch.manual_seed(0)
    w = torch.full((4, 4), 0.9, requires_grad=True)
    x = torch.linspace(0, 1, 16).reshape(4, 4).requires_grad_()
    with retape_torch.recompute(snapshots=4, stage=30) as run:
        h = x
        for _ in range(40):
            h = torch.dropout(torch.tanh(h * w), 0.2, True)
            state = h * 2
            state.add_(w)  # overwrites what the replay has made itself
            h = torch.cat([state.sin(), h]).reshape(2, 4, 4).sum(0)
        loss = h.sum()
    loss.backward()
    assert w.grad is not None and x.grad is not None
    return [w.grad, x.grad, torch.get_rng_state()], run.report


def test_values_pass_between_both_kinds_of_steps() -> None:
    python, report = mixed()
    retape_torch.accelerate()
    compiled, same = mixed()
    retape_torch.accelerate(False)
    assert all(map(torch.equal, python, compiled))
    assert report == same
    assert same.recomputed > 100  # type: ignore[attr-defined]


@pytest.mark.usefixtures("accelerated")
def test_an_overwritten_parameter_is_found_when_accelerated() -> None:
    w = torch.full((4, 4), 0.9, requires_grad=True)
    for memory in ("1MB", 8_000):  # read by a formula, or by a replayed step first
        with retape_torch.recompute(memory=memory):
            h = torch.ones(4, 4)
            for _ in range(100):
                h = torch.tanh(h * w)
            loss = h.sum()
        with torch.no_grad():
            w.mul_(1.1)
        with pytest.raises(MutationError, match="overwritten before its backward"):
            loss.backward()


@pytest.mark.usefixtures("accelerated")
def test_values_go_with_the_last_of_the_graph() -> None:
    gc.collect()  # runs of other tests whose errors held them
    before = {id(each) for each in gc.get_objects() if type(each) is Run}
    w = torch.full((4, 4), 0.9, requires_grad=True)
    with retape_torch.recompute(memory="1MB") as run:
        loss = torch.tanh(torch.tanh(w) * w).sum()
    runs = [each for each in gc.get_objects() if type(each) is Run]
    (trace,) = (each.trace for each in runs if id(each) not in before)
    del runs
    assert trace.counter.live == 2 * 64 + 4
    del loss
    assert (run.report.saved, trace.counter.live) == (3, 0)


@pytest.mark.usefixtures("accelerated")
@pytest.mark.parametrize("name", sorted(EXACT))
def test_loops_are_exact_when_accelerated(name: str) -> None:
    program = PROGRAMS[name]
    plain = outcome(program, contextlib.nullcontext())
    for options in ({"snapshots": 3, "stage": 6}, {"memory": 160_000}):
        under = retape_torch.recompute(mode="loop", **options)  # type: ignore[arg-type]
        assert_same(plain, outcome(program, under))


def looped(steps: int) -> tuple[torch.Tensor, object]:
    w = torch.full((4, 4), 0.9, requires_grad=True)
    with retape_torch.recompute(memory=20_000, mode="loop") as run:
        h = torch.ones(4, 4)
        for _ in range(steps):
            first, second = torch.stack([h * w, h + w]).unbind(0)
            h = torch.tanh(first.add(second, alpha=0.5))
        loss = h.sum()
    loss.backward()
    assert w.grad is not None
    return w.grad, run.report


def test_both_loops_do_the_same_work(monkeypatch: pytest.MonkeyPatch) -> None:
    python, report = looped(200)
    retape_torch.accelerate()
    compiled, same = looped(200)
    assert torch.equal(python, compiled)
    assert report == same
    reached: list[object] = []
    original = LoopRecorder._call

    def spy(self: LoopRecorder, func: object, *rest: object) -> object:
        reached.append(func)
        return original(self, func, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(LoopRecorder, "_call", spy)
    looped(200)
    retape_torch.accelerate(False)
    assert len(reached) == 200  # `add` with a keyword, and no other


@pytest.mark.usefixtures("accelerated")
def test_loops_refuse_by_name_when_accelerated() -> None:
    w = torch.full((4, 4), 0.9, requires_grad=True)
    with pytest.raises(UnsupportedError, match="`add_` was called under"):
        with retape_torch.recompute(memory="1MB", mode="loop"):
            (w * 2).add_(1)
    x = torch.ones(4, 4)
    with pytest.raises(MutationError, match="overwritten in place"):
        with retape_torch.recompute(memory="1MB", mode="loop"):
            h = w * x
            with torch._C.DisableTorchFunction():
                x.add_(1)  # unseen
            h = h * x
    with pytest.raises(UnsupportedError, match="under autocast"):
        with retape_torch.recompute(memory="1MB", mode="loop"):
            with torch.autocast("cpu"):
                w @ x


def test_a_loop_lets_its_tensors_go_without_the_collector() -> None:
    retape_torch.accelerate()
    w = torch.full((4, 4), 0.9, requires_grad=True)
    with retape_torch.recompute(memory="1MB", mode="loop"):
        h = torch.tanh(w * w)
        alive = weakref.ref(h)
        loss = h.sum()
    retape_torch.accelerate(False)
    gc.disable()
    try:
        del h
        loss.backward()
        assert alive() is None
    finally:
        gc.enable()

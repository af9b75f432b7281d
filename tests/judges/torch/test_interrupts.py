"""Ctrl-C at any line of a recording: it arrives as such, and leaves nothing behind."""

import sys
from collections.abc import Callable
from linecache import getline
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import retape.torch
from tests.judges.torch.faces import Operators

OURS = str(Path(retape.__file__).parent)
WAYS: dict[str, dict[str, Any]] = {
    "bytes": {"memory": 60_000},
    "snapshots": {"snapshots": 2, "stage": 4},
    "loop": {"snapshots": 2, "stage": 4, "mode": "loop"},
}
INTERRUPTS = 16


class Interrupt:
    """Counts the lines of the library that a job runs, and interrupts it at one."""

    def __init__(self, at: int = 0) -> None:
        self.at, self.lines = at, 0

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        if event == "line" and not cannot_be_helped(frame):
            self.lines += 1
            if self.lines == self.at:
                raise KeyboardInterrupt
        return self

    def arrives(self, job: Callable[[], object]) -> bool:
        """Whether it comes out of the job, which may be done before it."""
        sys.settrace(self)
        try:
            job()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
        return self.lines < self.at


def cannot_be_helped(frame: FrameType | None) -> bool:
    """What comes while something is put back is between two lines of any program.

    Python prints what is raised in a finaliser, and goes on.
    """
    assert frame is not None
    line = getline(frame.f_code.co_filename, frame.f_lineno)
    if frame.f_code.co_name == "__exit__" or "_set_grad" in line:
        return True
    while frame is not None:
        if frame.f_code.co_name == "__del__":
            return True
        frame = frame.f_back
    return False


# Of an object that was half made Python prints that its finaliser failed.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("way", WAYS)
def test_ctrl_c_arrives_and_leaves_nothing_behind(way: str) -> None:
    torch.manual_seed(0)
    parts = [part for _ in range(4) for part in (nn.Linear(8, 8), nn.Dropout(0.1))]
    net, x = nn.Sequential(*parts, nn.Tanh()), torch.randn(4, 8)

    def forward() -> Tensor:
        torch.manual_seed(1)
        with retape.torch.recompute(**WAYS[way]):
            return net(x).square().mean()

    def gradients(loss: Tensor) -> list[Tensor]:
        return list(torch.autograd.grad(loss, list(net.parameters())))

    torch.manual_seed(1)
    expected = gradients(net(x).square().mean())
    counted = Interrupt()
    assert not counted.arrives(forward)
    for number in range(INTERRUPTS):
        # The end is left out: what puts things back cannot be put back itself.
        at = 1 + number * (counted.lines - 1) * 3 // (INTERRUPTS * 4)
        assert Interrupt(at).arrives(forward)
        assert torch.is_grad_enabled()
        with Operators() as plain:
            torch.manual_seed(1)
            found = gradients(net(x).square().mean())
        assert all(map(torch.equal, found, expected))
        with Operators() as again:
            found = gradients(forward())
        assert all(map(torch.equal, found, expected))
        assert len(again.calls) > len(plain.calls)  # it recomputes, still


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["what_has_no_operator", "refusal_of"])
def test_ctrl_c_on_entering_or_leaving_leaves_no_recording_open(
    way: str, name: str
) -> None:
    x = torch.ones(4, 8, requires_grad=True)

    def steps() -> int:
        with retape.torch.recompute(**WAYS[way]) as run:
            loss = x.sin().exp().sum()
        loss.backward()
        return run.report.steps

    def interrupt(frame: FrameType, event: str, arg: object) -> None:
        if frame.f_code.co_name == name:
            sys.settrace(None)
            raise KeyboardInterrupt

    before = steps()
    sys.settrace(interrupt)
    try:
        steps()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(None)
    assert steps() == before > 0

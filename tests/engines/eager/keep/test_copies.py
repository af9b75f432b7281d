"""Copies beside the computing, on a device that is made up: its streams are late.

What is enqueued on the copies' stream is done when somebody waits for it, and a job of
it whenever somebody asks whether one is done. So a program that does not wait where it
has to reads what is not there yet, and memory that is let go too early is found out.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import retape.torch
from retape import DiskStore, MemoryStore
from retape.engines.eager.keep import _copies
from retape.storage import AsyncStore
from tests.engines.eager.keep.test_offload import ROOM, gradient


class LateEvent:
    def __init__(self, stream: "LateStream") -> None:
        self.stream, self.number = stream, stream.enqueued

    def query(self) -> bool:
        self.stream.run(min(self.stream.done + 1, self.stream.enqueued))
        return self.stream.done >= self.number

    def synchronize(self) -> None:
        self.stream.run(self.number)


class LateStream:
    """Does what is enqueued when it has to."""

    def __init__(self) -> None:
        self.jobs: list[Callable[[], None]] = []
        self.enqueued = self.done = 0

    def enqueue(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)
        self.enqueued += 1

    def run(self, number: int) -> None:
        while self.done < number:
            self.jobs[self.done]()
            self.done += 1

    def wait_stream(self, other: "LateStream") -> None:
        other.run(other.enqueued)

    def record_event(self) -> LateEvent:
        return LateEvent(self)


class Streams:
    """The functions of a device's module that are used; one more than one device."""

    def __init__(self) -> None:
        self.program = LateStream()
        self.current = self.program

    def current_stream(self, device: torch.device) -> LateStream:
        return self.current

    @contextmanager
    def stream(self, stream: LateStream) -> Iterator[None]:
        before, self.current = self.current, stream
        yield
        self.current = before


class LateCopies(_copies.HostCopies):
    """Copies of tensors on the CPU as if that were a device with streams."""

    all: list["LateCopies"] = []  # noqa: RUF012
    early = False

    def __init__(self) -> None:
        super().__init__()
        self.streams, self.own, self.copies = Streams(), LateStream(), 0
        self.leaves = False
        LateCopies.all.append(self)

    def _stream(self, device: torch.device) -> tuple[Any, Any] | None:
        return self.streams, self.own

    def settle(self, most: int = 0) -> None:
        if self.early:
            self._under_way.clear()
        super().settle(most)

    def enqueue(self, content: torch.Tensor, to: torch.device) -> torch.Tensor:
        assert self.streams.current is self.own
        # A device's memory knows nothing of Python's references.
        copy, source = torch.full_like(content, 255), content.data_ptr()
        self.copies += 1
        kept = None if self.leaves else content

        def job() -> None:
            if kept is None:
                held = [s for _, s in self._under_way if s.data_ptr() == source]
                assert held, "memory was let go before it was copied"
                again = torch.empty(0, dtype=torch.uint8).set_(held[0])  # type: ignore[call-overload]
                copy.copy_(again)
            else:
                copy.copy_(kept)

        self.own.enqueue(job)
        return copy

    def to_host(self, storage: Any) -> Any:
        self.leaves = True
        try:
            return super().to_host(storage)
        finally:
            self.leaves = False


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> Iterator[type[LateCopies]]:
    LateCopies.all.clear()
    monkeypatch.setattr("retape.engines.eager.keep._offload.HostCopies", LateCopies)
    monkeypatch.setattr(
        _copies, "enqueue_copy", lambda *given: LateCopies.all[-1].enqueue(*given)
    )
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda *_: None)
    yield LateCopies
    LateCopies.all.clear()


@pytest.mark.slow("memory-options0")
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("memory", {"memory": ROOM}),
        *((kind, {"snapshots": 9}) for kind in ("memory", "disk", "background")),
    ],
)
def test_the_bits_are_the_plain_ones(
    late: type[LateCopies], kind: str, options: dict[str, int], tmp_path: Path
) -> None:
    store: Any = MemoryStore()
    if kind != "memory":
        store = DiskStore(tmp_path)
    if kind == "background":
        store = AsyncStore(store)
    expected = gradient(torch.enable_grad())
    for _ in range(2):
        under = retape.torch.recompute(**options, store=store)  # type: ignore[arg-type]
        assert torch.equal(gradient(under), expected)
        assert under.report.recomputed > 0
        if "memory" in options:
            assert under.report.peak_bytes <= ROOM
    copies = sum(each.copies for each in late.all)
    assert copies > 30
    assert not list(tmp_path.rglob("step-*"))


def test_the_host_waits_for_few_of_its_copies(late: type[LateCopies]) -> None:
    gradient(retape.torch.recompute(snapshots=30, stage=2, store="cpu"))
    (copies,) = late.all
    assert copies.copies > 100
    assert 10 * copies.waits < copies.copies


def test_memory_that_is_let_go_too_early_is_found_out(late: type[LateCopies]) -> None:
    late.early = True
    try:
        with pytest.raises(AssertionError, match="let go before it was copied"):
            gradient(retape.torch.recompute(snapshots=9, store="cpu"))
    finally:
        late.early = False


def test_a_plan_of_a_loop_is_obeyed_with_late_copies(late: type[LateCopies]) -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(32, 32) for _ in range(20)])
    x = torch.linspace(-1, 1, 32 * 8).reshape(8, 32)

    def gradients(loss: Any) -> list[torch.Tensor]:
        model.zero_grad()
        loss.square().sum().backward()
        return [p.grad.clone() for p in model.parameters() if p.grad is not None]

    expected = gradients(model(x))
    found = gradients(
        retape.torch.checkpoint_sequential(
            model, input=x, plan=retape.fixed_space(snapshots=5), store="cpu"
        )
    )
    assert all(map(torch.equal, expected, found))
    assert late.all[-1].copies > 5


def test_streams_are_those_of_the_device() -> None:
    # The names that `HostCopies` calls, on PyTorch without a GPU as well.
    found = _copies.streams_of(torch.device("cuda"))
    assert found is torch.cuda
    for name in ("wait_stream", "record_event"):
        assert callable(getattr(found.Stream, name))
    for name in ("query", "synchronize"):
        assert callable(getattr(found.Event, name))


def test_a_cpu_has_no_streams() -> None:
    copies = _copies.HostCopies()
    storage = torch.arange(3.0).untyped_storage()
    content, event = copies.to_host(storage)
    assert event is None
    assert content.data_ptr() != storage.data_ptr()
    back = copies.to_device(content, torch.device("cpu"))
    assert back.tolist() == storage.tolist()
    assert copies.waits == 0

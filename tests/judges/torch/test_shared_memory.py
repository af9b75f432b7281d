"""Memory that others write, too: what was read of it is right, or refused by name."""

import contextlib
import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import retape.torch  # noqa: E402
from retape.torch import recompute  # noqa: E402
from tests.judges.pairwise import pairwise  # noqa: E402

pool = ThreadPoolExecutor(1)
STEPS = 6
SIZE = (STEPS, 8)


def taken(array: Any) -> tuple[Any, Any]:
    return torch.from_numpy(array), array


def by_dlpack(array: Any) -> tuple[Any, Any]:
    return torch.from_dlpack(array), array


def handed_out(array: Any) -> tuple[Any, Any]:
    value = torch.tensor(array) * 1
    return value, value.numpy()


def made_inside(array: Any) -> tuple[Any, Any]:
    value = torch.tensor(array) * 1
    # A window that nobody is told of, as a kernel has one.
    window = (ctypes.c_float * array.size).from_address(value.data_ptr())
    return value, np.ctypeslib.as_array(window).reshape(SIZE)


# A tensor, and an array on the same memory.
SOURCES: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "from NumPy": taken,
    "by DLPack": by_dlpack,
    "handed out": handed_out,
    "made inside": made_inside,
}
# What a step reads.
VIEWS: dict[str, Callable[[Any, int], Any]] = {
    "rows": lambda x, k: x[k],
    "columns": lambda x, k: x[:, k].repeat(2)[:8],
    "all": lambda x, k: x.sum(0),
    "overlapping": lambda x, k: x[max(0, k - 1) : k + 1].mean(0),
    "every other": lambda x, k: x.t()[::2, k].repeat(2),
    "seen again and again": lambda x, k: x[k, :1].expand(8),
    "as integers": lambda x, k: x.view(torch.int32)[k].float() * 1e-9,
}


def by_numpy(x: Any, array: Any, k: int) -> None:
    array[k] *= 2


def by_numpy_ahead(x: Any, array: Any, k: int) -> None:
    array[(k + 1) % STEPS, :] += 0.5


def by_torch(x: Any, array: Any, k: int) -> None:
    x[k].mul_(2)


def by_both(x: Any, array: Any, k: int) -> None:
    array[k - 1] += 0.25
    x[k].mul_(2)
    array[(k + 1) % STEPS] += 0.5


def by_a_thread(x: Any, array: Any, k: int) -> None:
    pool.submit(x[(k + 1) % STEPS].mul_, 2).result()


def by_a_kernel(x: Any, array: Any, k: int) -> None:
    """It is no operator of PyTorch's, and says by the counter that it has written."""
    array[(k + 1) % STEPS] *= 2
    torch.autograd.graph.increment_version(x)


def by_a_function(x: Any, array: Any, k: int) -> None:
    Doubled.apply(x[(k + 1) % STEPS])


class Doubled(torch.autograd.Function):
    """In place: what it marks as written is counted twice by PyTorch."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:  # noqa: D102
        ctx.mark_dirty(x)
        return x.mul_(2)


# What is written after a step, and by whom.
WRITES: dict[str, Callable[[Any, Any, int], None]] = {
    "nobody": lambda x, array, k: None,
    "NumPy": by_numpy,
    "NumPy, what is read next": by_numpy_ahead,
    "PyTorch": by_torch,
    "both": by_both,
    "another thread": by_a_thread,
    "a kernel": by_a_kernel,
    "a function of its own": by_a_function,
}
# These are seen.
OPERATORS = "nobody", "PyTorch", "a function of its own"
FACES: dict[str, Callable[[], Any]] = {
    "tight": lambda: recompute(snapshots=1, stage=2),
    "ample": lambda: recompute(memory="1MB"),
}


def gradient(source: str, view: str, write: str, under: Any) -> Any:
    torch.manual_seed(0)
    w = (torch.randn(8, 8) / 3).requires_grad_()
    array = np.linspace(0.1, 0.9, STEPS * 8, dtype=np.float32).reshape(SIZE)
    with under:
        x, seen = SOURCES[source](array)
        h = torch.ones(8) @ w
        for k in range(STEPS):
            with torch.no_grad():
                read = VIEWS[view](x, k).exp()
            h = torch.tanh(h @ w + read)
            with torch.no_grad():
                WRITES[write](x, seen, k)
        loss = h.square().sum()
    loss.backward()
    return w.grad


COLUMNS = {
    "source": list(SOURCES), "view": list(VIEWS), "write": list(WRITES),
    "face": list(FACES), "accelerated": [False, True],
}  # fmt: skip


def is_declared(source: str = "", write: str = "", **others: Any) -> bool:
    """Whether somebody says that what is made inside has been written."""
    return source != "made inside" or write not in (
        "NumPy", "NumPy, what is read next", "both",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("source", "view", "write", "face", "accelerated"),
    pairwise(COLUMNS, is_declared, seed=0),
    indirect=["accelerated"],
)
def test_right_or_refused(
    source: str, view: str, write: str, face: str, accelerated: bool
) -> None:
    plain = gradient(source, view, write, contextlib.nullcontext())
    try:
        found = gradient(source, view, write, FACES[face]())
    except retape.MachineError as error:
        assert any(each in str(error) for each in ("NumPy", "thread", "overwritten"))
        assert write not in OPERATORS
        return
    assert torch.equal(found, plain)


def seconds(x: Any, columns: bool) -> float:
    w = torch.randn(16, 16, requires_grad=True)
    before = time.process_time()
    with recompute(memory="64MB"):
        h = torch.zeros(1, 16)
        for k in range(200):
            row = x[:16, k] if columns else x[k, :16]
            h = torch.tanh(h @ w + row)
        loss = h.sum()
    loss.backward()
    return time.process_time() - before


@pytest.mark.parametrize("columns", [False, True])
def test_a_read_costs_what_it_reads(columns: bool) -> None:
    """It took nine times as long where all was looked at each time."""
    array = np.ones((2000, 800), dtype=np.float32)
    own = min(seconds(torch.tensor(array), columns) for _ in range(2))
    shared = min(seconds(torch.from_numpy(array), columns) for _ in range(2))
    assert shared < 3 * own


def written_later(to_array: Callable[[Any], Any], under: Any) -> Any:
    """A value is read, and written by NumPy before it is read again."""
    w = torch.linspace(0.1, 1, 4).requires_grad_()
    with under:
        with torch.no_grad():
            value = torch.linspace(0, 1, 4).exp()
        x = w
        for _ in range(6):
            x = (x * 1.1).sin()
        x = (x + value).square()
        for _ in range(6):
            x = (x * 1.1).sin()
        to_array(value)[:] = 0.5
        loss = ((x + value).sin() * 1.1).sum()
    loss.backward()
    return w.grad


@pytest.mark.parametrize("stage", range(1, 8))
@pytest.mark.parametrize("to_array", [lambda x: x.numpy(), np.from_dlpack])
def test_what_a_snapshot_holds_is_not_written(to_array: Any, stage: int) -> None:
    """A snapshot shared its memory: another gradient, and no error."""
    plain = written_later(to_array, contextlib.nullcontext())
    for snapshots in range(1, 8):
        under = recompute(snapshots=snapshots, stage=stage)
        assert torch.equal(written_later(to_array, under), plain)

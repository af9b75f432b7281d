"""Signals in the middle of compiled runs: Ctrl-C, and handlers that only look."""

import _thread
import math
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import pytest

import retape
import retape.native


@retape.native
def shrunk(x: float, n: int) -> float:
    for _ in range(n):
        x = 0.5 * math.sin(x)
    return x


@retape.native
def filled(x: float, n: int) -> float:
    row = numpy.zeros(3)
    for i in range(n):
        row[i % 3] = 0.5 * row[(i + 1) % 3] + x
    return row[0] + row[1] + row[2]


@retape.native
def until(x: float, end: float) -> float:
    turn = 0.0
    while turn < end:
        turn, x = turn + 1.0, 0.5 * math.sin(x)
    return x


@contextmanager
def soon(seconds: float, what: Callable[[], Any]) -> Iterator[None]:
    """Do something in another thread while the block runs."""
    timer = threading.Timer(seconds, what)
    timer.start()
    try:
        yield
    finally:
        timer.join()


FEW, MANY = 10, 2_000_000_000
grad = retape.native.grad
RUNS: dict[str, Callable[[int], object]] = {
    "value": lambda n: shrunk(0.3, n),
    "vectors": lambda n: filled(0.3, n),
    "forward": lambda n: retape.native.jvp(until, (0.3, 1.0 * n), (1.0, 0.0)),
    "reverse": lambda n: grad(shrunk, plan=retape.fixed_space(snapshots=4))(0.3, n),
    "reverse, vectors": lambda n: grad(filled, plan=retape.logarithmic())(0.3, n),
}


@pytest.mark.parametrize("name", RUNS)
def test_an_interrupt_ends_a_run_and_the_function_lives(name: str) -> None:
    expected = RUNS[name](FEW)
    # As Ctrl-C does, without a signal's way to the process.
    with pytest.raises(KeyboardInterrupt), soon(0.2, _thread.interrupt_main):
        RUNS[name](MANY)
    assert RUNS[name](FEW) == expected


def test_a_gradient_after_an_interrupted_one_is_the_same() -> None:
    def drift(x: float, n: int) -> float:
        for _ in range(n):
            x = x + 1e-6 * math.sin(x)
        return x

    gradient = grad(drift)
    expected = gradient(0.3, 30_000)
    with pytest.raises(KeyboardInterrupt), soon(0.2, _thread.interrupt_main):
        gradient(0.3, MANY)
    # It was wrong where the tape is longer than its first piece: that was not kept.
    assert gradient(0.3, 30_000) == expected


def test_what_a_handler_raises_ends_the_run() -> None:
    def raises(number: int, frame: object) -> None:
        raise TimeoutError("it takes too long")

    shrunk(0.3, FEW)
    before = signal.signal(signal.SIGINT, raises)
    try:
        with (
            pytest.raises(TimeoutError, match="takes too long"),
            soon(0.2, _thread.interrupt_main),
        ):
            shrunk(0.3, MANY)
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_handler_that_only_looks_changes_nothing() -> None:
    seen: list[object] = []

    def look(number: int, frame: object) -> None:
        seen.append(number)
        try:
            filled(0.3, 10)
        except retape.UnsupportedError as error:
            seen.append(str(error))

    expected = filled(0.3, 3_000_000)
    before = signal.signal(signal.SIGINT, look)
    try:
        with soon(0.0, _thread.interrupt_main):
            while not seen:
                assert filled(0.3, 3_000_000) == expected
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen[0] == signal.SIGINT


def test_a_thread_is_not_interrupted() -> None:
    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(filled(0.3, 1_000_000)))
    thread.start()
    thread.join()
    assert found == [filled(0.3, 1_000_000)]

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
def interrupted(
    seconds: float, handler: Callable[[int, Any], object] | None = None
) -> Iterator[None]:
    """Ctrl-C in the middle of the block, without a signal's way to the process."""
    before = signal.getsignal(signal.SIGINT)
    timer = threading.Timer(seconds, _thread.interrupt_main)
    signal.signal(signal.SIGINT, handler or before)
    timer.start()
    try:
        yield
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


FEW, MANY = 10, 2_000_000_000
grad = retape.native.grad
slope_of_shrunk = grad(shrunk)
RUNS: dict[str, Callable[[int], object]] = {
    "value": lambda n: shrunk(0.3, n),
    "vectors": lambda n: filled(0.3, n),
    "forward": lambda n: retape.native.jvp(until, (0.3, 1.0 * n), (1.0, 0.0)),
    "reverse": lambda n: grad(shrunk, plan=retape.fixed_space(snapshots=4))(0.3, n),
    # It was wrong where the tape is longer than its first piece: that was not kept.
    "reverse, long tape": lambda n: slope_of_shrunk(0.3, 3_000 * n),
    "reverse, vectors": lambda n: grad(filled, plan=retape.logarithmic())(0.3, n),
}


@pytest.mark.parametrize("calls", [1, 60])
@pytest.mark.parametrize("name", RUNS)
def test_an_interrupt_ends_a_run_and_the_function_lives(name: str, calls: int) -> None:
    """Also after so many calls that Python calls machine code at once."""
    expected = [RUNS[name](FEW) for _ in range(calls)]
    with pytest.raises(KeyboardInterrupt), interrupted(0.1):
        RUNS[name](MANY)
    assert RUNS[name](FEW) == expected[0]


def test_a_handler_may_raise_and_not_call_what_it_came_in_the_middle_of() -> None:
    seen: list[str] = []

    def call(number: int, frame: object) -> None:
        with pytest.raises(retape.UnsupportedError, match="in the middle") as caught:
            shrunk(0.3, FEW)
        seen.append(str(caught.value))
        raise TimeoutError("it takes too long")

    expected = shrunk(0.3, FEW)
    with pytest.raises(TimeoutError, match="takes too long"), interrupted(0.1, call):
        shrunk(0.3, MANY)
    assert len(seen) == 1
    assert shrunk(0.3, FEW) == expected


def test_a_handler_that_only_looks_changes_nothing() -> None:
    seen: list[object] = []

    def look(number: int, frame: object) -> None:
        seen.append(number)
        try:
            filled(0.3, 10)
        except retape.UnsupportedError as error:
            seen.append(str(error))

    expected = filled(0.3, 1_000_000)
    with interrupted(0.0, look):
        while not seen:
            assert filled(0.3, 1_000_000) == expected
    assert seen[0] == signal.SIGINT

"""A process forked while another thread is in a compiled function."""

import math
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from retape import native, vlad

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")


def wave(x, n):
    y = x
    for _ in range(n):
        y = y + 1e-5 * math.sin(y) * x
    return y


def _status_of_child(does: Callable[[], bool]) -> int:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a process with threads forks
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(120)
            os._exit(0 if does() else 1)
        except BaseException:
            os._exit(2)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@contextmanager
def _running(does: Callable[[], object]) -> Iterator[None]:
    """Another thread that does something over and over."""
    begun, ends = threading.Event(), threading.Event()

    def runs() -> None:
        begun.set()
        while not ends.is_set():
            does()

    thread = threading.Thread(target=runs)
    thread.start()
    begun.wait()
    yield
    ends.set()
    thread.join()


def test_a_child_does_not_wait_for_a_thread_that_is_not_there() -> None:
    gradient: Any = native.grad(wave)
    expected = gradient(0.7, 100)
    for _ in range(30):
        gradient(0.7, 100)  # until Python calls the program itself
    with _running(lambda: gradient(0.7, 3_000_000)):
        again: Any = native.grad(wave)
        statuses = [
            _status_of_child(lambda: again(0.7, 100) == expected) for _ in range(2)
        ]
    assert statuses == [0, 0]
    assert gradient(0.7, 100) == expected


WAVE = """
(define (wave x n)
  (if (= n 0) x (wave (+ x (* 1e-5 (* (sin x) x))) (- n 1))))
"""


@pytest.mark.parametrize("engine", ["compiled", "interpreter"])
def test_nor_for_one_that_is_in_a_vlad_module(engine: Any) -> None:
    wave = vlad.compile(WAVE, engine=engine)["wave"]
    expected = wave(0.7, 100)
    with _running(lambda: wave(0.7, 20_000)):
        statuses = [_status_of_child(lambda: wave(0.7, 100) == expected)]
    assert statuses == [0]
    assert wave(0.7, 100) == expected

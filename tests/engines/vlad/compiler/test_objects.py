"""Modules in a process: unloaded when dropped, shared by threads; the prompt."""

import gc
import math
import struct
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from retape import logarithmic, vlad
from tests.engines.vlad.support.prompt import converse
from tests.engines.vlad.support.threads import at_once


def _mapped() -> int:
    return Path("/proc/self/maps").read_text().count("program.so")


def test_a_module_that_is_dropped_is_unloaded_at_once() -> None:
    before = _mapped()
    gc.disable()
    try:
        module = vlad.compile("(define (f x) (* x (sin x)))", plan=logarithmic(stage=3))
        value = module["f"].checkpointed_grad(0.5)
        assert _mapped() > before
        del module
        assert _mapped() == before
    finally:
        gc.enable()
    assert value == pytest.approx(math.sin(0.5) + 0.5 * math.cos(0.5))


_OF_MUCH_MEMORY = """
import numpy as np
from retape import native

def total(table, x):
    y = x.copy()
    for _ in range(50):
        y = np.tanh(table @ y)
    return np.sum(y * y)

slope = native.grad(total, 1)

def second(table, x):
    return np.sum(slope(table, x))

native.grad(second, 1)(np.eye(30) / 30.0, np.ones(30))
print(native.measure(native.grad(second, 1), np.eye(30) / 30.0, np.ones(30)).value[0])
"""


def test_a_program_ends_whose_memory_has_gone_back_to_the_system(
    tmp_path: Path,
) -> None:
    # Handles that nobody freed were looked at when what they are of was not there.
    (tmp_path / "program.py").write_text(_OF_MUCH_MEMORY)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("engine", ["interpreter", "hybrid", "compiled"])
def test_threads_that_share_a_module_take_turns(engine: str) -> None:
    text = """
    (define (f x) (let loop ((i 0) (l '()) (s x))
      (if (= i 150) s (loop (+ i 1) (cons s l) (* 0.99 (+ s (sin s)))))))
    """
    module = vlad.compile(text, engine=engine, plan=logarithmic(stage=400))
    points = [0.1 * k for k in range(1, 5)]
    expected = [(module["f"](x), module["f"].grad(x)) for x in points]
    found: list[bool] = []

    def work(x: float, right: tuple[float, float]) -> None:
        for _ in range(2 if engine != "compiled" else 40):
            f = module["f"]
            found.append((f(x), f.grad(x)) == right)
            found.append(f.checkpointed_grad(x) == pytest.approx(right[1], rel=1e-12))

    at_once(*(partial(work, *each) for each in zip(points, expected, strict=True)))
    assert found and all(found)


def test_the_limit_of_recursion_is_as_it_was_after_threads_that_overlap() -> None:
    before = sys.getrecursionlimit()
    text = "(define (f n) (if (zero? n) 0 (+ 1 (f (- n 1))))) (f 3000)"
    at_once(*[partial(vlad.run, text, engine="hybrid")] * 4)
    assert sys.getrecursionlimit() == before


@pytest.mark.parametrize("engine", ["interpreter", "hybrid", "compiled"])
def test_a_nan_of_any_payload_is_read_as_a_number(engine: str) -> None:
    odd = [
        0xFFFB000000001000,
        0xFFFA123456789ABC,
        0x7FF8000000000001,
        0xFFF9000000000002,
    ]
    reals = [struct.unpack("<d", struct.pack("<Q", bits))[0] for bits in odd]
    text = "(+ 1 (read-real)) " * 4
    values = vlad.run(text, engine=engine, stdin=reals).values
    assert all(value != value for value in values)


def test_the_prompt_keeps_its_definitions_whatever_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no room left")

    maker = "retape.engines.vlad.session._repl.make_engine"
    told = converse(
        [
            "(define (f x) (* 2 x))",
            lambda: monkeypatch.setattr(maker, fail),
            "(define (g x) (f (f x))) (g 3)",
            monkeypatch.undo,
            "(g 3)",
        ]
    )
    assert told[2] == "OSError: no room left" and told[4] == "12"

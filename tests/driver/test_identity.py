"""A folder answers for one program: the parts of a run are compared, and named."""

import ctypes
import functools
import subprocess
import sys
import threading
from dataclasses import dataclass
from functools import partial

import numpy as np
import pytest

import retape
from retape import PlanError, StoreError

RATE = 2.0


def reverse_step(x, k, g):
    return 2.0 * g


def call(path, **options):
    options = {
        "step": lambda x, k: 2.0 * x,
        "reverse_step": reverse_step,
        "x0": 1.0,
        "seed": lambda x: 1.0,
        "steps": 3,
        **options,
    }
    return retape.adjoint(store=retape.DiskStore(path), **options)


class Solver:
    def __init__(self, rate):
        self.rate = rate

    def step(self, x, k):
        return self.rate * x

    def __call__(self, x, k):
        return self.rate * x


class Faster(Solver):
    def step(self, x, k):
        return 2 * self.rate * x


@dataclass(frozen=True)
class Seed:
    weight: float
    along: np.ndarray

    def __call__(self, x):
        return self.weight * self.along.sum()


def reading(rate):
    return lambda x, k: rate * x


def through(function):
    return lambda x, k: function(x)


def with_default(x, k, rate=2.0):
    return rate * x


def keyword_only(*, rate):
    def step(x, k, *, rate=rate):
        return rate * x

    return step


def remembered(rate):
    @functools.cache
    def factor(k):
        return rate

    return lambda x, k: factor(k) * x


PAIRS = {
    "closure": ("step", reading(2.0), reading(3.0), "`rate`, which `step` reads"),
    "array in a closure": ("step", reading(np.ones(1)), reading(np.zeros(1)), "`rate`"),
    "keyword default": ("step", keyword_only(rate=2.0), keyword_only(rate=3.0), "rate"),
    "default": (
        "step",
        with_default,
        lambda x, k, rate=3.0: rate * x,
        "`rate`, which `step` reads",
    ),
    "self": ("step", Solver(2.0).step, Solver(3.0).step, "`self`, which `step` reads"),
    "class": ("step", Solver(2.0).step, Faster(2.0).step, "the code of `step`, `self`"),
    "object": ("step", Solver(2.0), Solver(3.0), "`self`, which `step` reads"),
    "other class": ("step", Solver(2.0), Faster(2.0), "`self`, which `step` reads"),
    "bound object": (
        "step",
        partial(lambda s, x, k: s.rate * x, Solver(2.0)),
        partial(lambda s, x, k: s.rate * x, Solver(3.0)),
        "`argument 0`, which `step` reads",
    ),
    "bound keyword": (
        "step",
        partial(with_default, rate=2.0),
        partial(with_default, rate=3.0),
        "`rate`, which `step` reads",
    ),
    "seed": (
        "seed",
        Seed(1.0, np.arange(3.0)),
        Seed(1.0, np.arange(3.0)[::-1]),
        "`self`, which `seed` reads",
    ),
    "function that is called": (
        "step",
        through(lambda x: 2.0 * x),
        through(lambda x: 3.0 * x),
        "`function`, which `step` reads",
    ),
    "decorated": ("step", remembered(2.0), remembered(3.0), "`factor`, which `step`"),
    "vectorised": (
        "step",
        through(np.vectorize(lambda x: 2.0 * x)),
        through(np.vectorize(lambda x: 3.0 * x)),
        "`function`, which `step` reads",
    ),
    "random state": (
        "seed",
        partial(lambda r, x: 1.0, np.random.default_rng(1)),
        partial(lambda r, x: 1.0, np.random.default_rng(2)),
        "`argument 0`, which `seed` reads",
    ),
    "set": ("step", through({"a", "b"}.union), through({"a", "c"}.union), "`function`"),
}


@pytest.mark.parametrize("kind", PAIRS)
def test_a_folder_of_another_run_is_refused_and_the_difference_named(tmp_path, kind):
    name, before, after, text = PAIRS[kind]
    for _ in range(2):
        assert call(tmp_path, steps=0, **{name: before}).state == 1.0
    with pytest.raises(StoreError, match="they differ in ") as found:
        call(tmp_path, steps=0, **{name: after})
    assert text in str(found.value)
    assert "Use another directory, or remove that one." in str(found.value)


def test_module_variables_are_part_of_the_run(tmp_path, monkeypatch):
    def step(x, k):
        return RATE * x

    call(tmp_path, step=step)
    monkeypatch.setitem(globals(), "RATE", 3.0)
    with pytest.raises(StoreError, match="they differ in `RATE`, which `step` reads"):
        call(tmp_path, step=step)


def test_start_state_steps_and_plan_are_named_too(tmp_path):
    call(tmp_path)
    with pytest.raises(StoreError, match="they differ in x0. Use another"):
        call(tmp_path, x0=2.0)
    with pytest.raises(StoreError, match="they differ in `steps`. Use another"):
        call(tmp_path, steps=4)
    with pytest.raises(StoreError, match="and this one is .*snapshots=2"):
        call(tmp_path, plan=retape.fixed_space(snapshots=2))


def test_a_finished_run_is_handed_out_only_if_asked_for(tmp_path):
    calls = 0

    def step(x, k):
        nonlocal calls
        calls += 1
        return 2.0 * x

    for reuse, runs in [(False, True), (False, True), (True, False), (False, True)]:
        calls = 0
        result = call(tmp_path, step=step, key="it", reuse=reuse)
        assert (result.cotangent, calls > 0) == (8.0, runs)
        assert result.report.resumed is reuse


def test_a_key_takes_the_place_of_the_functions(tmp_path):
    assert call(tmp_path, key="it").state == 8.0
    assert call(tmp_path, key="it", step=lambda x, k: 3.0 * x).state == 27.0
    with pytest.raises(StoreError, match="they differ in `key`"):
        call(tmp_path, key=7)
    for key in ((1, 2), "two\nlines", 1.5):
        with pytest.raises(PlanError, match="cannot be: pass a text of one line or a"):
            call(tmp_path, key=key)


@pytest.mark.parametrize(
    "value",
    [
        threading.Lock(),
        sys.stdout.buffer if hasattr(sys.stdout, "buffer") else sys.stdout,
        (x for x in "a"),
        ctypes.CFUNCTYPE(None)(lambda: None),
        [threading.Lock()],
        Solver(threading.Lock()),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_cannot_be_compared_is_refused_by_name(tmp_path, value):
    with pytest.raises(StoreError, match="^`step` reads `rate`, and .*Pass `key=`"):
        call(tmp_path, step=reading(value))
    assert (
        call(tmp_path, step=lambda x, k: 2.0 * x if value else x, key="it").state == 8
    )
    # In memory nothing is taken up again, so nothing need be known.
    step = lambda x, k: 2.0 * x if value else x  # noqa: E731
    assert retape.adjoint(step, reverse_step, 1.0, seed=float, steps=3).state == 8.0


def test_an_object_that_refers_to_itself_is_known(tmp_path):
    ring = Solver(1.0)
    ring.rate = [ring]
    other = Solver(1.0)
    other.rate = [other, 1]
    call(tmp_path, steps=0, step=ring.step)
    with pytest.raises(StoreError, match="they differ in"):
        call(tmp_path, steps=0, step=other.step)


PROGRAM = """
import sys, pathlib, retape
sys.path.insert(0, {folder!r})
import solver

def step(x, k):
    return solver.advance(x, {{"b", "a", "c"}})

class Done:
    words = frozenset(["x", "y", "z", "w"])
    def __call__(self, x):
        return x > 50

store = retape.DiskStore({folder!r} + "/run")
result = retape.adjoint(step, lambda x, k, g: g, 1.0, seed=float, done=Done(),
                        store=store, reuse=True)
print(result.report.resumed)
"""


@pytest.mark.slow
def test_another_process_finds_the_same_run_and_an_edited_module_is_another(tmp_path):
    solver = tmp_path / "solver.py"
    solver.write_text("def advance(x, names):\n    return 2.0 * x\n")
    code = PROGRAM.format(folder=str(tmp_path))

    def process():
        command = [sys.executable, "-B", "-c", code]
        return subprocess.run(command, capture_output=True, text=True)

    assert process().stdout == "False\n"
    assert process().stdout == "True\n"
    solver.write_text("def advance(x, names):\n    return 4.0 * x\n")
    assert "they differ in `solver`, which `step` reads" in process().stderr


def test_a_c_library_counts_by_its_file(tmp_path):
    found = ctypes.CDLL("libm.so.6")
    copy = tmp_path / "libm.so.6"
    with open("/proc/self/maps") as maps:
        path = next(line.split()[-1] for line in maps if "libm.so.6" in line)
    with open(path, "rb") as source:
        copy.write_bytes(source.read() + b"edited")
    for _ in range(2):
        call(tmp_path / "run", steps=0, step=lambda x, k: found.cos(x))
    found = ctypes.CDLL(str(copy))
    with pytest.raises(StoreError, match="they differ in"):
        call(tmp_path / "run", steps=0, step=lambda x, k: found.cos(x))

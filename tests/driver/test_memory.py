"""Ways in which real steps handle memory: each is right by default, or refused by name.

All programs below are one: x -> x + 0.1*sin(x) + 0.001*k. The oracle is that formula,
applied to copies that nobody else has, with every state stored; a test compares it with
finite differences.
"""

import ctypes
import itertools
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest

import retape
from retape.storage import copy_tree
from tests.programs import run_program

N, STEPS = 6, 11

PLANS = {
    "space": retape.fixed_space(snapshots=3, stage=1),
    "stages": retape.fixed_space(snapshots=2, stage=4),
    "tapes": retape.fixed_space(snapshots=4, store={"state", "tape"}),
    "tiers": retape.tiers(memory=1, disk=2, stage=2),
    "levels": retape.tiers(
        levels=(retape.Tier("device", 1), retape.Tier("host", 2, 1, 1)), stage=2
    ),
}


def formula(x, k):
    return x + 0.1 * np.sin(x) + 0.001 * k


def slope(x):
    return 1 + 0.1 * np.cos(x)


def expected(x0, steps=STEPS):
    """The last state and the cotangent of x0, whose seed is the last state."""
    states = [x0]
    for k in range(steps):
        states.append(formula(states[-1], k))
    g = states[-1]
    for x in reversed(states[:-1]):
        g = slope(x) * g
    return states[-1], g


def start():
    return np.linspace(0.2, 1.4, N)


class Way:
    """How a program handles memory; here, with none that is used twice."""

    options: dict = {}  # noqa: RUF012

    def start(self):
        return start()

    def step(self, x, k):
        return formula(x, k)

    def reverse(self, x, k, g):
        return slope(x) * g

    def seed(self, x):
        return np.array(x)

    def values(self, x):
        return np.asarray(x)


class InPlace(Way):
    def step(self, x, k):
        x[:] = formula(x, k)
        return x


class InPlaceSeedIsState(InPlace):
    """The cotangent is the state's memory, and changed in place."""

    def seed(self, x):
        return x

    def reverse(self, x, k, g):
        g *= slope(x)
        return g


class PingPong(Way):
    """Two buffers in turn."""

    def __init__(self, count=2):
        self.buffers = [np.empty(N) for _ in range(count)]

    def step(self, x, k):
        out = self.buffers[k % len(self.buffers)]
        out[:] = formula(x, k)
        return out


class Ring(PingPong):
    def __init__(self):
        super().__init__(3)


class OneBuffer(PingPong):
    def __init__(self):
        super().__init__(1)


class ViewOfWork(PingPong):
    """A view of the inner points of a work array with halos."""

    def __init__(self):
        super().__init__(1)
        self.work = np.zeros(N + 2)

    def step(self, x, k):
        self.work[1:-1] = formula(np.array(x), k)
        return self.work[1:-1]


class ReverseRunsTheStep(PingPong):
    """The adjoint runs the step, which overwrites the buffer that the state is in."""

    def reverse(self, x, k, g):
        self.step(x, k)
        self.step(x, k + 1)
        return slope(x) * g


class ReverseInOneBuffer(Way):
    def __init__(self):
        self.out = np.empty(N)

    def reverse(self, x, k, g):
        self.out[:] = slope(x) * g
        return self.out


class SharedWork(PingPong):
    """Steps and adjoints work in one array."""

    def __init__(self):
        super().__init__(1)

    def reverse(self, x, k, g):
        self.buffers[0][:] = slope(x) * g
        return self.buffers[0]

    def seed(self, x):
        self.buffers[0][:] = x
        return self.buffers[0]


class ReverseSpoilsState(Way):
    def reverse(self, x, k, g):
        x[:] = slope(x)
        x *= g
        return x


class ReusedTape(Way):
    """Tapes are one buffer, and the state is changed in place."""

    def __init__(self):
        self.buffer = np.empty(N)
        self.options = {"tape": self.tape}

    def tape(self, x, k):
        self.buffer[:] = slope(x)
        x[:] = formula(x, k)
        return x, {"slope": self.buffer}

    def reverse(self, tape, k, g):
        return tape["slope"] * g


class TapeIsArgument(Way):
    """The tape is the argument itself, which the step then overwrites."""

    def __init__(self):
        self.options = {"tape": lambda x, k: (formula(x, k), [x])}

    def reverse(self, tape, k, g):
        g = slope(tape[0]) * g
        tape[0][:] = np.nan
        return g


class Lists(Way):
    """A list, changed in place, whose entries are views of one another."""

    def start(self):
        whole = start()
        return [whole, whole[: N // 2], whole[N // 2 :]]

    def step(self, x, k):
        x[1][:] = formula(x[1], k)
        x[2][:] = formula(x[2], k)
        return x

    def reverse(self, x, k, g):
        return [slope(x[0]) * g[0], *g[1:]]

    def seed(self, x):
        return [x[0], 0.0, 0.0]

    def values(self, x):
        return x[0]


class Twice(Way):
    """The same array under two names."""

    def start(self):
        u = start()
        return {"now": u, "alias": u}

    def step(self, x, k):
        x["alias"][:] = formula(x["now"], k)
        return x

    def reverse(self, x, k, g):
        return {"now": slope(x["alias"]) * g["now"], "alias": 0.0}

    def seed(self, x):
        return {"now": x["now"], "alias": 0.0}

    def values(self, x):
        return x["now"]


class Pair(NamedTuple):
    u: np.ndarray
    label: str


class NamedPair(Way):
    def start(self):
        return Pair(start(), "u")

    def step(self, x, k):
        x.u[:] = formula(x.u, k)
        return x

    def reverse(self, x, k, g):
        assert x.label == "u"
        return Pair(slope(x.u) * g.u, "g")

    def seed(self, x):
        return Pair(x.u, "g")

    def values(self, x):
        return x.u


@dataclass(frozen=True)
class Fields:
    u: np.ndarray
    count: int = 0


class Frozen(NamedPair):
    def start(self):
        return Fields(start())

    def step(self, x, k):
        x.u[:] = formula(x.u, k)
        return Fields(x.u, x.count + 1)

    def reverse(self, x, k, g):
        assert x.count == k
        return Fields(slope(x.u) * g.u)

    def seed(self, x):
        return Fields(x.u)


class Vector:
    """A class of the user's own, as PETSc's or Firedrake's."""

    def __init__(self, values):
        self.u = values

    def copy(self):
        return Vector(self.u.copy())

    def nbytes(self):
        return self.u.nbytes

    def to_arrays(self):
        return self.u

    @classmethod
    def from_arrays(cls, arrays):
        return cls(arrays)


class Own(NamedPair):
    def start(self):
        return Vector(start())

    def step(self, x, k):
        x.u[:] = formula(x.u, k)
        return x

    def reverse(self, x, k, g):
        g.u *= slope(x.u)
        return g

    def seed(self, x):
        return x


class Masked(Way):
    def start(self):
        return np.ma.MaskedArray(start(), mask=np.arange(N) == 2)

    def step(self, x, k):
        assert x.mask.tolist() == [False, False, True, False, False, False]
        x[:] = formula(x, k)
        return x

    def seed(self, x):
        return x.copy()

    def values(self, x):
        assert isinstance(x, np.ma.MaskedArray) and x.mask[2]
        return x.filled(0.0)


class Matrix(Way):
    def start(self):
        return start().reshape(2, 3).view(np.matrix)

    def step(self, x, k):
        assert isinstance(x, np.matrix)
        return formula(x, k)

    def seed(self, x):
        return x

    def reverse(self, x, k, g):
        return np.multiply(slope(x), g)

    def values(self, x):
        assert isinstance(x, np.matrix)
        return np.asarray(x).reshape(-1)


class LongDouble(Way):
    def start(self):
        return start().astype(np.longdouble)


class Axes(Way):
    """Neither C- nor Fortran-contiguous, with a gap and a negative stride."""

    def start(self):
        x = np.zeros((3, 2, 4)).transpose(2, 0, 1)[::-2, :, 1]
        x[...] = start().reshape(2, 3)
        return x

    def step(self, x, k):
        assert x.strides == (-16, 64)
        x[...] = formula(x, k)
        return x

    def reverse(self, x, k, g):
        assert x.strides == (-16, 64)
        return slope(x) * g

    def seed(self, x):
        return x

    def values(self, x):
        return np.asarray(x).reshape(-1)


class Fortran(Way):
    def start(self):
        return np.asfortranarray(start().reshape(2, 3))

    def step(self, x, k):
        assert x.flags.f_contiguous and not x.flags.c_contiguous
        x[...] = formula(x, k)
        return x

    def values(self, x):
        return np.ascontiguousarray(x).reshape(-1)


class Structured(Way):
    """Records with padding."""

    KIND = np.dtype([("flag", "i1"), ("u", "f8")], align=True)

    def start(self):
        x = np.zeros(N, self.KIND)
        x["u"] = start()
        return x

    def step(self, x, k):
        x["u"] = formula(x["u"], k)
        return x

    def reverse(self, x, k, g):
        return slope(x["u"]) * g

    def seed(self, x):
        return x["u"]

    def values(self, x):
        return x["u"] if x.dtype.names else x


class ReadOnly(Way):
    """The start state may not be written to, and is a view of a buffer."""

    def start(self):
        return np.frombuffer(start().tobytes())

    def step(self, x, k):
        x += 0.1 * np.sin(x) + 0.001 * k
        return x


class Floats(Way):
    def start(self):
        return tuple(start().tolist())

    def step(self, x, k):
        return tuple(float(formula(v, k)) for v in x)

    def reverse(self, x, k, g):
        return tuple(float(slope(v) * w) for v, w in zip(x, g, strict=True))

    def seed(self, x):
        return x


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    place = tmp_path_factory.mktemp("c") / "memory.so"
    source = os.path.join(os.path.dirname(__file__), "memory.c")
    compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
    flags = ["-O2", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, source, "-o", place, "-lm"], check=True)
    found = ctypes.CDLL(os.fspath(place))
    found.step_in_library.restype = ctypes.POINTER(ctypes.c_double)
    return found


def pointer(x):
    """As `ctypes` gives it away: whether NumPy may write to it plays no part."""
    return ctypes.c_void_p(x.ctypes.data)


class C(Way):
    library = None

    def call(self, name, *args):
        given = [pointer(a) if isinstance(a, np.ndarray) else a for a in args]
        longs = [ctypes.c_long(a) if isinstance(a, int) else a for a in given]
        return getattr(self.library, name)(ctypes.c_long(N), *longs)


class CInPlace(C):
    def step(self, x, k):
        self.call("step_in_place", x, k)
        return x

    def reverse(self, x, k, g):
        self.call("reverse_in_place", x, g)
        return g

    def seed(self, x):
        return x


class CSpoils(C):
    """The argument is read and then used as scratch space."""

    def step(self, x, k):
        out = np.empty(N)
        self.call("step_and_spoil", x, out, k)
        return out

    def reverse(self, x, k, g):
        self.call("reverse_and_spoil", x, g)
        return g


class CPingPong(C):
    def __init__(self):
        self.buffers = [np.empty(N), np.empty(N)]

    def step(self, x, k):
        out = self.buffers[k % 2]
        self.call("step_out", x, out, k)
        return out


class CLibraryMemory(C):
    """The state is an array of the library's own."""

    def step(self, x, k):
        found = self.call("step_in_library", x, k)
        return np.ctypeslib.as_array(found, (N,))


class CAgainstTheHint(CInPlace):
    """C writes to a read-only array, against what was promised."""

    options = {"in_place": False}  # noqa: RUF012


WAYS = [
    Way, InPlace, InPlaceSeedIsState, PingPong, Ring, OneBuffer, ViewOfWork,
    ReverseRunsTheStep, ReverseInOneBuffer, SharedWork, ReverseSpoilsState, ReusedTape,
    TapeIsArgument, Lists, Twice, NamedPair, Frozen, Own, Masked, Matrix, LongDouble,
    Axes, Fortran, Structured, ReadOnly, Floats, CInPlace, CSpoils, CPingPong,
    CLibraryMemory, CAgainstTheHint,
]  # fmt: skip


def store_of(kind, path):
    if kind == "memory":
        return retape.MemoryStore()
    disk = retape.DiskStore(path)
    return (
        disk
        if kind == "disk"
        else retape.TieredStore(retape.MemoryStore(capacity=1), disk)
    )


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda handle: None)


KINDS = ["memory", "disk", "tiered"]
EVERY = list(itertools.product(KINDS, PLANS))
# Each way with a plan in memory and one in files, in turn; a few with all of them.
CELLS = [
    (way, kind, plan)
    for i, way in enumerate(WAYS)
    for kind, plan in (
        EVERY
        if way in (InPlaceSeedIsState, SharedWork, Lists)
        else [EVERY[i % 5], EVERY[5 + i * 3 % 10]]
    )
]


@pytest.mark.parametrize(("way", "kind", "plan"), CELLS)
def test_every_way_to_handle_memory_is_right(library, tmp_path, way, kind, plan):
    C.library = library
    program = way()
    x0 = program.start()
    before = copy_tree(x0)
    result = run_program(
        program.step,
        program.reverse,
        x0,
        seed=program.seed,
        steps=STEPS,
        plan=PLANS[plan],
        store=store_of(kind, tmp_path),
        key="the table",
        **program.options,
    )
    right = way()
    first = np.array(right.values(right.start())).reshape(-1)
    state, cotangent = expected(first)
    if way is Masked:
        state[2] = cotangent[2] = 0.0
    assert np.allclose(program.values(result.state), state, rtol=1e-14, atol=0)
    assert np.allclose(program.values(result.cotangent), cotangent, rtol=1e-13, atol=0)
    unchanged = np.asarray(program.values(x0)) == np.asarray(program.values(before))
    assert unchanged.all()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_run_of_unknown_length_is_right_too(library, way):
    C.library = library
    program, ends = way(), expected(start())[0]

    def done(x):
        return bool(np.asarray(program.values(x)).reshape(-1)[-1] >= ends[-1] * 0.9999)

    result = run_program(
        program.step,
        program.reverse,
        program.start(),
        seed=program.seed,
        done=done,
        plan=retape.fixed_space(snapshots=2, stage=2),
        **program.options,
    )
    _, cotangent = expected(np.array(program.values(program.start())).reshape(-1))
    if way is Masked:
        cotangent[2] = 0.0
    assert result.report.length == STEPS
    assert np.allclose(program.values(result.cotangent), cotangent, rtol=1e-13, atol=0)


@pytest.mark.parametrize("way", [InPlace, PingPong, CInPlace, ReusedTape, SharedWork])
def test_the_table_would_see_a_run_that_copies_nothing(library, monkeypatch, way):
    C.library = library
    monkeypatch.setattr("retape.driver._step_machine.copy_tree", lambda x: x)
    program = way()
    result = run_program(
        program.step,
        program.reverse,
        program.start(),
        seed=program.seed,
        steps=STEPS,
        plan=PLANS["stages"],
        **program.options,
    )
    assert not np.allclose(result.cotangent, expected(start())[1], rtol=1e-3)


def test_the_oracle_is_the_finite_difference():
    h, x0 = 1e-6, start()

    def value(x):
        return 0.5 * (expected(x)[0] ** 2).sum()

    slopes = [(value(x0 + h * e) - value(x0 - h * e)) / (2 * h) for e in np.eye(N)]
    assert np.allclose(expected(x0)[1], slopes, rtol=1e-8)


@pytest.mark.parametrize("failing", [1, 7, 14])
def test_after_a_failed_call_the_users_arrays_are_as_they_were(failing):
    """Also their flags, and those of the buffers that steps return."""
    x0, program, calls = start(), PingPong(), 0

    def step(x, k):
        nonlocal calls
        calls += 1
        if calls == failing:
            raise ArithmeticError
        return program.step(x, k)

    for in_place in (None, True, False):
        calls = 0
        with pytest.raises(ArithmeticError):
            run_program(
                step,
                program.reverse,
                x0,
                in_place=in_place,
                seed=program.seed,
                steps=STEPS,
                plan=PLANS["space"],
            )
        assert (x0 == start()).all() and x0.flags.writeable
        assert all(buffer.flags.writeable for buffer in program.buffers)


def test_results_are_nobody_elses_memory():
    program = SharedWork()

    def call(x0):
        return run_program(
            program.step, program.reverse, x0, seed=program.seed, steps=STEPS
        )

    first = call(start())
    kept = first.state.copy(), first.cotangent.copy()
    call(2 * start())
    assert (first.state == kept[0]).all() and (first.cotangent == kept[1]).all()
    empty = run_program(
        program.step, program.reverse, kept[0], seed=lambda x: x, steps=0
    )
    assert not np.may_share_memory(empty.state, kept[0])
    assert not np.may_share_memory(empty.cotangent, empty.state)


@pytest.mark.parametrize(
    ("x0", "text"),
    [
        (np.array([1.0, None]), "array of dtype `object` cannot be in a state"),
        ({1, 2}, "a value of type `set` cannot be in a state"),
        ([1.0, iter([])], "a value of type `list_iterator` cannot be in a state"),
        ((x for x in "a"), "a value of type `generator` cannot be in a state"),
    ],
)
def test_what_cannot_be_copied_is_refused_before_the_first_step(x0, text):
    with pytest.raises(retape.StoreError, match=text):
        run_program(
            lambda x, k: pytest.fail("a step was run"),
            lambda x, k, g: g,
            x0,
            seed=lambda x: x,
            steps=3,
        )

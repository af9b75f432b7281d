"""Ways in which real steps handle memory: each is right by default, or refused by name.

All programs are the judges' one, in other ways and with states of other kinds. The
oracle is its formula, applied to copies that nobody else has (`by_hand`).
"""

import ctypes
import os
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import retape
from retape.storage import copy_tree
from tests.judges.core.programs import N, Program, by_hand, formula, slope, start
from tests.judges.core.test_plans import PLANS, STEPS, UNKNOWN, call, check
from tests.judges.pairwise import pairwise
from tests.programs import run_program
from tests.storage.kinds import Fields, Point, Vector


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    place = tmp_path_factory.mktemp("c") / "memory.so"
    source = Path(__file__).with_name("memory.c")
    compiler = shutil.which("cc") or shutil.which("gcc") or "cc"
    flags = ["-O2", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, source, "-o", place, "-lm"], check=True)
    found = ctypes.CDLL(os.fspath(place))
    found.step_in_library.restype = ctypes.POINTER(ctypes.c_double)
    return found


class Memory:
    """The arrays of a program, in which all of its functions may work."""

    def __init__(self, library=None):
        self.library = library
        self.rows, self.other = np.empty((3, N)), np.empty(N)
        self.work = np.zeros(N + 2)

    def into(self, row, values):
        self.rows[row][:] = values
        return self.rows[row]

    def c(self, name, *arguments):
        """Pointers as `ctypes` gives them: whether NumPy may write plays no part."""
        given = [
            ctypes.c_void_p(a.ctypes.data)
            if isinstance(a, np.ndarray)
            else ctypes.c_long(a)
            for a in arguments
        ]
        return getattr(self.library, name)(ctypes.c_long(N), *given)


# How steps are made. --------------------------------------------------------------


def new_state(memory, x, k):
    return formula(x, k)


def in_place(memory, x, k):
    x[:] = formula(x, k)
    return x


def one_buffer(memory, x, k):
    return memory.into(0, formula(x, k))


def two_buffers(memory, x, k):
    return memory.into(k % 2, formula(x, k))


def three_buffers(memory, x, k):
    return memory.into(k % 3, formula(x, k))


def view_of_work(memory, x, k):
    """The inner points of a work array with halos."""
    memory.work[1:-1] = formula(np.array(x), k)
    return memory.work[1:-1]


def c_in_place(memory, x, k):
    memory.c("step_in_place", x, k)
    return x


def c_spoils(memory, x, k):
    """The argument is read and then used as scratch space."""
    out = np.empty(N)
    memory.c("step_and_spoil", x, out, k)
    return out


def c_two_buffers(memory, x, k):
    out = memory.rows[k % 2]
    memory.c("step_out", x, out, k)
    return out


def c_library_memory(memory, x, k):
    """The state is an array of the library's own."""
    return np.ctypeslib.as_array(memory.c("step_in_library", x, k), (N,))


# How they are reversed. -----------------------------------------------------------


def new_cotangent(memory, x, k, g):
    return slope(x) * g


def cotangent_in_place(memory, x, k, g):
    g *= slope(x)
    return g


def one_cotangent(memory, x, k, g):
    memory.other[:] = slope(x) * g
    return memory.other


def buffer_of_steps(memory, x, k, g):
    return memory.into(0, slope(x) * g)


def runs_the_steps(memory, x, k, g):
    """Which overwrites the buffers that states are in."""
    two_buffers(memory, x, k)
    two_buffers(memory, x, k + 1)
    return slope(x) * g


def state_spoilt(memory, x, k, g):
    x[:] = slope(x)
    x *= g
    return x


def c_cotangent(memory, x, k, g):
    memory.c("reverse_in_place", x, g)
    return g


def c_state_spoilt(memory, x, k, g):
    memory.c("reverse_and_spoil", x, g)
    return g


# How the first cotangent is made. -------------------------------------------------


def new_seed(memory, x):
    return 2 * x


def seed_in_place(memory, x):
    x *= 2
    return x


def seed_in_buffer(memory, x):
    return memory.into(0, 2 * x)


COLUMNS = {
    "step": [
        *(new_state, in_place, one_buffer, two_buffers, three_buffers, view_of_work),
        *(c_in_place, c_spoils, c_two_buffers, c_library_memory),
    ],
    "reverse": [
        *(new_cotangent, cotangent_in_place, one_cotangent, buffer_of_steps),
        *(runs_the_steps, state_spoilt, c_cotangent, c_state_spoilt),
    ],
    "seed": [new_seed, seed_in_place, seed_in_buffer],
    "plan": ["snapshots", "stages", "tapes", "two tiers", "levels"],
    "kind": ["memory", "disk", "tiered"],
    "known": [True, False],
}


def can_be(step, reverse, seed, plan, kind, known):
    return known or plan in UNKNOWN


def program_of(memory, step, reverse, seed, x0=None):
    return Program(
        lambda x, k: step(memory, x, k),
        lambda x, k, g: reverse(memory, x, k, g),
        start() if x0 is None else x0,
        {"seed": lambda x: seed(memory, x)},
    )


@pytest.mark.parametrize(
    "cell",
    pairwise(COLUMNS, can_be, seed=1),
    ids=lambda cell: "-".join(getattr(v, "__name__", str(v)) for v in cell),
)
def test_every_way_to_handle_memory_is_right(library, tmp_path, cell):
    step, reverse, seed, plan, kind, known = cell
    program = program_of(Memory(library), step, reverse, seed)
    check(program, call(program, PLANS[plan], kind, tmp_path, known=known))


def reused_tape():
    """Tapes are one buffer, and the state is changed in place."""
    buffer = np.empty(N)

    def tape(x, k):
        buffer[:] = slope(x)
        x[:] = formula(x, k)
        return x, {"slope": buffer}

    return tape, lambda tape, k, g: tape["slope"] * g


def tape_is_argument():
    """The tape is the argument itself, which the adjoint then overwrites."""

    def reverse(tape, k, g):
        g = slope(tape[0]) * g
        tape[0][:] = np.nan
        return g

    return lambda x, k: (formula(x, k), [x]), reverse


@pytest.mark.parametrize("plan", COLUMNS["plan"])
@pytest.mark.parametrize("make", [reused_tape, tape_is_argument])
def test_every_way_to_keep_a_tape_is_right(tmp_path, make, plan):
    for kind in COLUMNS["kind"]:
        tape, reverse = make()
        options = {"seed": lambda x: 2 * x, "tape": tape}
        program = Program(formula, reverse, start(), options)
        check(program, call(program, PLANS[plan], kind, tmp_path / kind))


# Kinds of states: one program, which changes them in place. -----------------------


RECORD = np.dtype([("flag", "i1"), ("u", "f8")], align=True)


def with_gaps(u):
    """Neither C- nor Fortran-contiguous, with a gap and a negative stride."""
    x = np.zeros((3, 2, 4)).transpose(2, 0, 1)[::-2, :, 1]
    x[...] = u.reshape(2, 3)
    return x


def records(u):
    """With padding."""
    x = np.zeros(N, RECORD)
    x["u"] = u
    return x


KINDS = {
    "views": (
        lambda u: [u, u[: N // 2], u[N // 2 :]],
        lambda x: x[0],
        lambda x: (np.concatenate(x[1:]) == x[0]).all(),
    ),
    "two names": (
        lambda u: {"now": u, "alias": u},
        lambda x: x["now"],
        lambda x: (x["now"] == x["alias"]).all(),
    ),
    "a named tuple": (
        lambda u: Point(u, "u"),
        lambda x: x.x,
        lambda x: type(x) is Point and x.y == "u",
    ),
    "frozen fields": (Fields, lambda x: x.u, lambda x: (x.p, x.beside) == (1.0, [1.0])),
    "of one's own": (Vector, lambda x: x.u, lambda x: type(x) is Vector),
    "gaps": (with_gaps, np.asarray, lambda x: x.strides == (-16, 64)),
    "records": (records, lambda x: x["u"], lambda x: x.dtype == RECORD),
    "a tuple of numbers": (
        lambda u: tuple(u.tolist()),
        np.array,
        lambda x: {type(v) for v in x} == {float},
    ),
}
STATES = {"state": list(KINDS)} | {
    name: COLUMNS[name] for name in ("plan", "kind", "known")
}


def fits(state, plan, kind, known):
    return known or plan in UNKNOWN


@pytest.mark.parametrize("cell", pairwise(STATES, fits, seed=2), ids=str)
def test_every_kind_of_state_is_kept(tmp_path, cell):
    state, plan, kind, known = cell
    make, array, holds = KINDS[state]

    def step(x, k):
        assert holds(x)
        if isinstance(x, tuple) and not isinstance(x, Point):
            return make(formula(array(x), k))
        array(x)[...] = formula(array(x), k)
        return x

    def reverse(x, k, g):
        assert holds(x) and holds(g)
        return make(np.ravel(slope(array(x)) * array(g)))

    def seed(x):
        return make(np.ravel(2 * array(x)))

    program = Program(step, reverse, make(start()), {"seed": seed}, array)
    before = copy_tree(program.x0)
    found = call(program, PLANS[plan], kind, tmp_path, known=known)
    check(program, found)
    assert holds(found.state) and holds(found.cotangent) and holds(before)


def test_a_start_state_may_be_a_view_that_nobody_may_write_to(tmp_path):
    x0 = np.frombuffer(start().tobytes())
    program = program_of(Memory(), in_place, new_cotangent, new_seed, x0)
    check(program, call(program, PLANS["stages"], "memory", tmp_path))


@pytest.mark.parametrize(
    ("step", "reverse"),
    [
        (in_place, new_cotangent),
        (two_buffers, new_cotangent),
        (c_in_place, c_cotangent),
        (one_buffer, buffer_of_steps),
    ],
)
def test_the_table_would_see_a_run_that_copies_nothing(
    library, monkeypatch, tmp_path, step, reverse
):
    monkeypatch.setattr("retape.driver._steps._step_machine.copy_tree", lambda x: x)
    program = program_of(Memory(library), step, reverse, new_seed)
    found = call(program, PLANS["stages"], "memory", tmp_path)
    right = by_hand(program, STEPS)[2]
    assert not np.allclose(found.cotangent, right, rtol=1e-3)


@pytest.mark.parametrize("failing", [1, 7, 14])
def test_after_a_failed_call_the_users_arrays_are_as_they_were(failing, tmp_path):
    """Also their flags, and those of the buffers that steps return."""
    memory, calls = Memory(), 0

    def step(memory, x, k):
        nonlocal calls
        calls += 1
        if calls == failing:
            raise ArithmeticError
        return two_buffers(memory, x, k)

    program = program_of(memory, step, new_cotangent, new_seed)
    with pytest.raises(ArithmeticError):
        call(program, PLANS["snapshots"], "memory", tmp_path)
    assert program.x0.tolist() == start().tolist() and program.x0.flags.writeable
    assert all(buffer.flags.writeable for buffer in memory.rows)


def test_results_are_nobody_elses_memory(tmp_path):
    memory = Memory()

    def gradient(x0, steps=STEPS, seed=seed_in_buffer):
        program = program_of(memory, one_buffer, buffer_of_steps, seed, x0)
        return run_program(
            program.step, program.reverse_step, x0, steps=steps, **program.options
        )

    first = gradient(start())
    kept = first.state.copy(), first.cotangent.copy()
    gradient(2 * start())
    assert (first.state == kept[0]).all() and (first.cotangent == kept[1]).all()
    empty = gradient(kept[0], 0, lambda memory, x: x)
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
    step = lambda x, k: pytest.fail("a step was run")  # noqa: E731
    with pytest.raises(retape.StoreError, match=text):
        run_program(step, lambda x, k, g: g, x0, seed=lambda x: x, steps=3)

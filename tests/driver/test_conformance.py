"""What every `Machine` promises, and every `TapingMachine`, in one suite."""

import numpy as np
import pytest

from retape._adjoint import _StepMachine
from retape.driver import TapingMachine, ToyMachine, run
from retape.schedule import Mixed, Schedule
from retape.storage import fingerprint

LENGTH = 17


def step(x, k):
    return {"x": np.sin(x["x"]) + 0.1 * k, "p": x["p"]}


def reverse_step(x, k, g):
    return {"x": np.cos(x["x"]) * g["x"], "p": g["p"] + g["x"]}


def taped(x, k):
    return step(x, k), (np.cos(x["x"]), k)


def swept(tape, k, g):
    assert tape[1] == k
    return {"x": tape[0] * g["x"], "p": g["p"] + g["x"]}


def of_steps(steps, reverse, *, tape=None, in_place=False):
    x0 = {"x": np.linspace(0, 1, 3), "p": 0.5}
    return _StepMachine(steps, reverse, x0, lambda x: x, LENGTH, None, in_place, tape)


MACHINES = {
    "toy": lambda: ToyMachine(LENGTH),
    "steps": lambda: of_steps(step, reverse_step),
    "steps with a tape": lambda: of_steps(step, swept, tape=taped),
    "steps in place": lambda: of_steps(step, reverse_step, in_place=True),
}


def print_of(value):
    if hasattr(value, "value"):
        return (value.step, value.value)
    return fingerprint(value)


@pytest.fixture(params=MACHINES, ids=str)
def machine(request):
    return MACHINES[request.param]()


def test_advances_compose_and_change_nothing(machine):
    start = machine.start()
    before = print_of(start)
    whole, made = machine.advance(start, 7)
    first, _ = machine.advance(start, 3)
    both, _ = machine.advance(first, 4)
    assert int(made) == 7 and print_of(whole) == print_of(both)
    assert print_of(start) == before == print_of(machine.start())
    assert machine.nbytes(start) > 0


def test_stages_compose_and_change_nothing(machine):
    start = machine.start()
    middle, _ = machine.advance(start, 9)
    before = print_of(start), print_of(middle)
    whole = machine.reverse(start, LENGTH, None)
    late = machine.reverse(middle, LENGTH - 9, None)
    assert print_of(machine.reverse(start, 9, late)) == print_of(whole)
    assert (print_of(start), print_of(middle)) == before


def test_a_tape_is_a_value_that_gives_the_bits_of_a_reverse(machine):
    assert isinstance(machine, TapingMachine)
    start = machine.start()
    middle, _ = machine.advance(start, 9)
    late = machine.reverse(middle, LENGTH - 9, None)
    tape, after = machine.tape(start, 9)
    before = fingerprint(tape)
    assert print_of(after) == print_of(middle)
    direct = print_of(machine.reverse(start, 9, late))
    assert print_of(machine.sweep(tape, 9, late)) == direct
    assert print_of(machine.sweep(tape, 9, late)) == direct
    assert fingerprint(tape) == before and machine.tape_nbytes(tape) > 0


def test_a_schedule_with_tapes_gives_the_same_bits(machine):
    plain = run(machine, Schedule(LENGTH, 3)).result
    for schedule in (Mixed(LENGTH, 3), Mixed(LENGTH, 4, 2, 1, 2)):
        assert print_of(run(machine, schedule).result) == print_of(plain)


def test_a_machine_without_tapes_is_told_apart():
    class Plain:
        length = start = advance = reverse = nbytes = finish = None

    assert not isinstance(Plain(), TapingMachine)

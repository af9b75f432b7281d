"""The conformance suite on all machines of the library, and on machines that lie."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import retape
from retape import MachineError, MemoryStore
from retape.driver import ToyMachine
from retape.driver import run as drive
from retape.testing import check_machine
from tests.driver.toys import by_itself, toys_at
from tests.programs import run_program

LENGTH = 17


# The library's machines -----------------------------------------------------------


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("steps", [1, 2, LENGTH])
def test_the_toy_machine_keeps_the_laws(known, steps):
    laws = check_machine(lambda: ToyMachine(steps, tells_length=known))
    assert len(laws) == 11 and len(set(laws)) == 11
    assert all(law.endswith(".") for law in laws)


def step(x, k):
    return {"x": np.sin(x["x"]) + 0.1 * k, "p": x["p"]}


def step_in_place(x, k):
    x["x"][...] = np.sin(x["x"]) + 0.1 * k
    return x


def reverse_step(x, k, g):
    return {"x": np.cos(x["x"]) * g["x"], "p": g["p"] + g["x"].sum()}


def taped(x, k):
    return step(x, k), (np.cos(x["x"]), k)


def swept(tape, k, g):
    assert tape[1] == k
    return {"x": tape[0] * g["x"], "p": g["p"] + g["x"].sum()}


STEPS: dict[str, tuple[Any, dict[str, Any]]] = {
    "steps": ((step, reverse_step), {"steps": LENGTH}),
    "a predicate": ((step, reverse_step), {"done": lambda x: x["x"][0] > 1.7}),
    "a tape": ((step, swept), {"steps": LENGTH, "tape": taped}),
    "in place": ((step_in_place, reverse_step), {"steps": LENGTH}),
}


@pytest.mark.parametrize("kind", STEPS)
def test_the_machine_of_a_step_function_keeps_the_laws(kind, monkeypatch, tmp_path):
    """What `retape.adjoint` drives, taken from its call of the driver."""
    functions, options = STEPS[kind]
    checked = []

    def check(machine, plan, **others):
        assert callable(machine.tape) and callable(machine.sweep)
        place = tmp_path / "run"
        checked.append(check_machine(machine, store=lambda: retape.DiskStore(place)))
        return drive(machine, plan, **others)

    monkeypatch.setattr("retape._adjoint_arguments.run", check)
    x0 = {"x": np.linspace(0, 1, 3), "p": 0.5}
    run_program(*functions, x0, seed=lambda x: x, **options)
    (laws,) = checked
    assert len(laws) == 13 and "that died is taken up" in laws[-1]


@pytest.mark.slow("False")
@pytest.mark.parametrize("known", [True, False])
def test_the_machine_of_a_jax_program_keeps_the_laws(known, monkeypatch, tmp_path):
    jax = pytest.importorskip("jax")
    import retape.jax

    def looped(x, n):
        body = lambda c: (c[0] + 1, jax.numpy.sin(c[1] * x))  # noqa: E731
        if known:
            return jax.lax.scan(lambda y, _: (body((0, y))[1], None), x, length=100)[0]
        return jax.lax.while_loop(lambda c: c[0] < n, body, (0, x))[1]

    checked = []

    def check(machine, plan, **others):
        place = tmp_path / "run"
        kept = {"store": lambda: retape.DiskStore(place)}
        checked.append(check_machine(machine, stage=plan.stage, **kept))
        return drive(machine, plan, **others)

    monkeypatch.setattr("retape.engines.jaxpr.api._hosted.run", check)
    plan = retape.fixed_space(snapshots=3, stage=4)
    store = retape.DiskStore(tmp_path / "own")
    got = retape.jax.grad(looped, plan=plan, store=store)(0.7, 12)
    assert len(checked) == 1 and len(checked[0]) == 11
    assert float(got) == float(retape.jax.grad(looped, plan=plan)(0.7, 12))


VLAD = """
    (define (f n x) (if (= n 0) x (f (- n 1) (+ (* x (sin x)) 0.3))))
    (checkpoint-*j (lambda (x) (f 6 x)) 0.7 1)
"""


def test_the_machine_of_compiled_vlad_keeps_the_laws(monkeypatch, tmp_path):
    from retape import vlad
    from retape.engines.vlad.session import _engines

    checked = []

    def check(machine, plan, *, store, **others):
        def view(value):
            if hasattr(value, "marks"):
                return store.pack(value)
            # What the compiled machine's `finish` returns is the runtime's handle.
            return machine.native.pack(value) if isinstance(value, int) else value

        disk = replace(store.inner, path=tmp_path / "laws")
        kept = lambda: replace(store, inner=replace(disk))  # noqa: E731
        checked.append(check_machine(machine, store=kept, view=view))
        return drive(machine, plan, store=store, **others)

    monkeypatch.setattr(_engines, "drive", check)
    result = vlad.run(VLAD, store=tmp_path / "own")
    monkeypatch.undo()
    assert result.values == vlad.run(VLAD).values
    assert len(checked) == 1 and len(checked[0]) == 11


@pytest.mark.parametrize("engine", ["interpreter", "hybrid"])
def test_the_machines_of_vlads_interpreters_keep_the_laws(engine, monkeypatch):
    from retape import vlad
    from retape.engines.vlad.session import _engines

    checked = []

    def check(machine, plan, **others):
        def view(value):
            if not hasattr(value, "mark"):
                return value
            if not value.env:  # the run's end
                return value.mark
            done = machine.evaluator.resume(value)
            return value.mark, done.steps, done.value

        checked.append(check_machine(machine, view=view))
        return drive(machine, plan, **others)

    monkeypatch.setattr(_engines, "drive", check)
    result = vlad.run(VLAD, engine=engine)
    monkeypatch.undo()
    assert result.values == vlad.run(VLAD, engine=engine).values
    assert len(checked) == 1 and len(checked[0]) == 10


# A machine of a newcomer's ---------------------------------------------------------


class Box:
    """A capsule, a cotangent or a tape of a class of its own."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def copy(self):
        return Box(self.value)

    def nbytes(self):
        return 8

    def to_arrays(self):
        return self.value

    @classmethod
    def from_arrays(cls, value):
        return cls(value)


class Boxed(ToyMachine):
    """The toy, all of whose values are of a class of its own."""

    def start(self):
        return Box(super().start())

    def advance(self, capsule, steps):
        after, made = super().advance(capsule.value, steps)
        return Box(after), made

    def reverse(self, capsule, steps, cotangent):
        tape, after = self.tape(capsule, steps)
        return self.sweep(tape, steps, cotangent or Box((after.value.value, 1)))

    def tape(self, capsule, steps):
        tape, after = super().tape(capsule.value, steps)
        return Box(tape), Box(after)

    def sweep(self, tape, steps, cotangent):
        return Box(super().sweep(tape.value, steps, cotangent.value))

    def nbytes(self, capsule):
        return super().nbytes(capsule.value)

    def tape_nbytes(self, tape):
        return super().tape_nbytes(tape.value)

    def finish(self, cotangent):
        return super().finish(cotangent.value)


def boxes_at(place):
    return retape.DiskStore(place, every=0)


def view(value):
    return value.value if isinstance(value, Box) else value


@pytest.mark.parametrize("tiered", [False, True])
def test_a_newcomer_s_machine_runs_on_a_disk(tiered, tmp_path):
    def store():
        disk = boxes_at(tmp_path / "run")
        return retape.TieredStore(MemoryStore(capacity=1), disk) if tiered else disk

    assert len(check_machine(lambda: Boxed(9), store=store, view=view)) == 12
    plan = retape.fixed_space(snapshots=3, store={"state", "tape"})
    boxed = Boxed(23)
    found = drive(boxed, plan, store=store()).result
    assert found == by_itself(23)
    # Asked for, the result comes from the disk, with its cotangent unpacked.
    again = drive(boxed, plan, store=store(), reuse=True)
    assert again.result == found and again.report.taped == 0


class Buffered(Boxed):
    """A machine whose one capsule is overwritten; its copies are right or wrong."""

    copies = True

    def held(self, capsule):
        one = self.__dict__.setdefault("one", Box(None))
        one.value = capsule.value
        return one

    def start(self):
        return self.held(super().start())

    def advance(self, capsule, steps):
        after, made = super().advance(capsule, steps)
        return self.held(after), made

    def tape(self, capsule, steps):
        tape, after = super().tape(capsule, steps)
        return tape, self.held(after)

    def copy_capsule(self, capsule):
        return Box(capsule.value) if self.copies else capsule


class Around:
    """An object around a machine, which hands all on when it is asked."""

    def __init__(self, machine):
        self.machine = machine

    def __getattr__(self, name):
        return getattr(self.machine, name)


@pytest.mark.parametrize("around", [lambda machine: machine, Around])
def test_a_machine_that_overwrites_its_capsules_is_given_copies(around, monkeypatch):
    def make():
        return around(Buffered(LENGTH))

    laws = check_machine(make, view=view)
    assert "What `copy_capsule` gives stays as it is: no call overwrites it." in laws
    monkeypatch.setattr(Buffered, "copies", False)
    with pytest.raises(MachineError, match="breaks a law of machines"):
        check_machine(make, view=view)


# Machines that lie -----------------------------------------------------------------


class Drifting(ToyMachine):
    """Reads what it should not."""

    def advance(self, capsule, steps):
        after, made = super().advance(capsule, steps)
        return replace(after, value=after.value + self.advanced), made


class Rounded(ToyMachine):
    """Loses something wherever a run is interrupted."""

    def advance(self, capsule, steps):
        after, made = super().advance(capsule, steps)
        return replace(after, value=after.value + 1), made


class Miscounted(ToyMachine):
    def advance(self, capsule, steps):
        after, made = super().advance(capsule, steps)
        return after, made - (after.step == self.steps)


class Endless(ToyMachine):
    def advance(self, capsule, steps):
        return super().advance(capsule, steps)[0], steps


class Restless(ToyMachine):
    def start(self):
        self.x0 += 1
        return super().start()


class Undecided(ToyMachine):
    def length(self):
        self.steps += 1
        return self.steps


class Shared(ToyMachine):
    """Its capsule is a list that `advance` changes."""

    def start(self):
        return [super().start()]

    def advance(self, capsule, steps):
        after, made = super().advance(capsule[0], steps)
        capsule[0] = after
        return [after], made

    def reverse(self, capsule, steps, cotangent):
        return super().reverse(capsule[0], steps, cotangent)

    def tape(self, capsule, steps):
        tape, after = super().tape(capsule, steps)
        return tape, after

    def nbytes(self, capsule):
        return 8


class Amnesiac(ToyMachine):
    """Forgets what accumulated when a stage is shorter than before."""

    def reverse(self, capsule, steps, cotangent):
        output, slope = super().reverse(capsule, steps, cotangent)
        return (output, slope) if cotangent is None else (output, slope + 1)


class Mistaken(ToyMachine):
    """Its result is not in the cotangent, but in what it did last."""

    def finish(self, cotangent):
        return (*cotangent, self.taped)


class Weightless(ToyMachine):
    def nbytes(self, capsule):
        return -1


class Consuming(ToyMachine):
    """A tape that can be swept once."""

    def tape(self, capsule, steps):
        tape, after = super().tape(capsule, steps)
        return list(tape), after

    def sweep(self, tape, steps, cotangent):
        found = super().sweep(tuple(tape), steps, cotangent)
        tape.clear()
        return found


class Broken(ToyMachine):
    def reverse(self, capsule, steps, cotangent):
        raise ZeroDivisionError("no such luck")


LIARS = [
    (Drifting, "Running the same steps again .* gives the same state. But 1 steps fr"),
    (
        Rounded,
        "in two parts give the state .* But 2 steps from step 0 and then 6",
    ),
    (Miscounted, "`advance` returns how many .* of 17 steps from step 0 it counted 16"),
    (Restless, "`start` gives the same state .* But the second call gave another"),
    (Undecided, "`length` tells the same each time.* But it told 19, and then 20"),
    (Shared, "No method changes a capsule .* But `advance` changed the capsule befo"),
    (
        Amnesiac,
        "However a run is cut .* But stages that end at 17 gave another",
    ),
    (Mistaken, "`finish` gives the same result.* But two ways to cut"),
    (Weightless, "numbers of bytes .* But `nbytes` of the capsule before step 0 is -1"),
    (Consuming, "`sweep` after `tape` .* But the tape of 0 to 16 gave another cotang"),
    (Broken, "But a `ZeroDivisionError` was raised: no such luck"),
]


@pytest.mark.parametrize(("liar", "said"), LIARS)
def test_a_machine_that_lies_is_told_which_law_it_breaks(liar, said):
    with pytest.raises(MachineError, match=said) as caught:
        check_machine(lambda: liar(LENGTH))
    assert str(caught.value).startswith(f"`{liar.__name__}` breaks a law of machines.")


def test_a_run_without_an_end_is_told_so():
    with pytest.raises(MachineError, match="`Endless` has no end: 1048575 steps"):
        check_machine(lambda: Endless(5, tells_length=False))


def test_a_machine_that_keeps_its_output_elsewhere_is_told_so(tmp_path):
    class Forgetful(ToyMachine):
        """Its value is not in the cotangent: another process does not have it."""

        kept = 0

        def reverse(self, capsule, steps, cotangent):
            found = super().reverse(capsule, steps, cotangent)
            if cotangent is None:
                self.kept = found[0]
            return found

        def finish(self, cotangent):
            return self.kept, cotangent[1]

    store = lambda: toys_at(tmp_path)  # noqa: E731
    with pytest.raises(MachineError, match="A run that died is taken up by another"):
        check_machine(lambda: Forgetful(9), store=store)


def test_what_is_no_machine_is_named():
    with pytest.raises(MachineError, match="`int` is not a machine: it has no `le"):
        check_machine(3)  # pyright: ignore[reportArgumentType]


class Fused(ToyMachine):
    """Numbers of floating point, added in another order when a stage is longer."""

    def sweep(self, tape, steps, cotangent):
        output, slope = cotangent
        return output, slope * 3.0**steps * (1 + 1e-12 * steps**2)

    def reverse(self, capsule, steps, cotangent):
        tape, after = self.tape(capsule, steps)
        return self.sweep(tape, steps, cotangent or (float(after.value), 1.0))


def test_a_view_may_round():
    with pytest.raises(MachineError, match="However a run is cut into stages"):
        check_machine(lambda: Fused(LENGTH))
    rounded = lambda value: f"{value[1]:.9e}" if type(value) is tuple else value  # noqa: E731
    assert len(check_machine(lambda: Fused(LENGTH), view=rounded)) == 11

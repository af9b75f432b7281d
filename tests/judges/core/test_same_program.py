"""A run that was killed is taken up by the program that began it, or refused.

Whatever has changed in between, and wherever a function reads it: what comes out has
the bits of one program, the old one or the new one, and never of both.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import types
from collections import UserDict, deque
from functools import partial
from typing import Any

import numpy as np
import pytest

import retape
from retape.storage import AsyncStore, CodecStore
from tests.programs import run_program

STEPS = 30


class Killed(BaseException):
    """The end of a process."""


class Holder:
    """Where a number is that a function reads: a module of settings, `params.dt`."""

    def __init__(self, path: Any) -> None:
        self.module: Any = types.ModuleType("settings_of_a_user")
        self.path, self.of_c = path / "settings.txt", (ctypes.c_double * 1)()


class Module(Holder):
    def set(self, value: float) -> None:
        self.module.dt = value

    def get(self) -> float:
        return self.module.dt


class Environment(Holder):
    def set(self, value: float) -> None:
        os.environ["RETAPE_TEST_DT"] = str(value)

    def get(self) -> float:
        return float(os.environ["RETAPE_TEST_DT"])


class File(Holder):
    def set(self, value: float) -> None:
        self.path.write_text(str(value))

    def get(self) -> float:
        return float(self.path.read_text())


class OfC(Holder):
    """A static variable of a library in C."""

    def set(self, value: float) -> None:
        self.of_c[0] = value

    def get(self) -> float:
        return self.of_c[0]


class Library(Holder):
    """A function of a library, which is another one in its next version."""

    def set(self, value: float) -> None:
        self.module.factor = lambda: value

    def get(self) -> float:
        return self.module.factor()


class Deep(Holder):
    """An attribute of an object in a list in an object."""

    def set(self, value: float) -> None:
        self.module.parts = [types.SimpleNamespace(dt=value)]

    def get(self) -> float:
        return self.module.parts[0].dt


HOLDERS = [Module, Environment, File, OfC, Library, Deep]
STORES: dict[str, Any] = {
    "disk": lambda path: retape.DiskStore(path, every=0),
    "tiered": lambda path: retape.TieredStore(
        retape.MemoryStore(capacity=1), retape.DiskStore(path, every=0)
    ),
    "async": lambda path: AsyncStore(retape.DiskStore(path, every=0)),
    "codec": lambda path: CodecStore(retape.DiskStore(path, every=0)),
    "lossy": lambda path: CodecStore(retape.DiskStore(path, every=0), "float32"),
}


def program(use: str, get: Any) -> dict[str, Any]:
    """The functions of a run; the one that is named reads what changes."""

    def dt(name: str) -> float:
        return get() if name == use else 0.1

    def step(x: Any, k: int) -> Any:
        return x + dt("step") * np.sin(x)

    found: dict[str, Any] = {
        "step": step,
        "reverse_step": lambda x, k, g: g + dt("reverse_step") * np.cos(x) * g,
        "seed": lambda x: dt("seed") * x,
        "steps": STEPS,
    }
    if use == "tape":
        found["tape"] = lambda x, k: (step(x, k), 1 + dt("tape") * np.cos(x))
        found["reverse_step"] = lambda slope, k, g: slope * g
    if use == "many":

        def forward(x: Any, first: int, last: int) -> Any:
            for _ in range(first, last):
                x = x + dt("many") * np.sin(x)
            return x

        found |= {"step": None, "many": forward}
    if use in ("cost", "cost_gradient"):
        found["cost"] = lambda x, k: dt("cost") * float(x @ x)
        found["cost_gradient"] = lambda x, k: dt("cost_gradient") * x
    return found


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RETAPE_TEST_DT", "")


USES = ["step", "reverse_step", "seed", "tape", "many", "cost_gradient"]
KILLS = {"forward": 20, "reverse": 45}
"""Steps after which the process ends."""


def call(
    functions: dict[str, Any], store: Any = None, last: int | None = None, **more: Any
) -> Any:
    def watch(progress: Any) -> None:
        if last is not None and progress.done >= last:
            raise Killed

    given: dict[str, Any] = {
        "x0": np.linspace(0.2, 1.4, 5),
        "plan": retape.fixed_space(snapshots=3, stage=2),
        "store": store,
        "progress": watch,
    }
    found = run_program(**functions | given | more)
    bits = found.state.tobytes(), found.cotangent.tobytes(), found.cost
    return (bits, found.report.taped) if more else bits


def attempt(functions: dict[str, Any], store: Any) -> Any:
    try:
        return call(functions, store)
    except retape.StoreError as error:
        text = str(error)
        assert "another run" in text or "another program" in text
        return "refused"


CELLS = [
    *[(holder, "step", "disk", "reverse") for holder in HOLDERS],
    *[(holder, "step", "disk", "forward") for holder in HOLDERS[::2]],
    *[(Module, use, "disk", "reverse") for use in USES[1:]],
    *[(Module, use, "disk", "forward") for use in USES[1::2]],
    *[(Module, use, s, "reverse") for use in USES[:2] for s in STORES if s != "disk"],
]


@pytest.mark.parametrize(
    ("holder", "use", "store", "kill"),
    [pytest.param(*c, id="-".join([c[0].__name__, *c[1:]])) for c in CELLS],
)
def test_what_comes_out_is_of_one_program(holder, use, store, kill, tmp_path):
    held = holder(tmp_path)
    functions = program(use, held.get)
    make = lambda: STORES[store](tmp_path / "run")  # noqa: E731
    held.set(0.1)
    with pytest.raises(Killed):
        call(functions, make(), KILLS[kill])
    held.set(0.2)
    changed = call(functions, STORES[store](tmp_path / "other"))
    found = attempt(functions, make())
    assert found in ("refused", changed)
    if kill != "forward":
        assert found == "refused"
        held.set(0.1)
        right = call(functions, STORES[store](tmp_path / "right"))
        assert attempt(functions, make()) == right


RATE = 0.1


def late(k: int, rate: float) -> float:
    """A rate of the last steps only, which are reversed before the process ends."""
    return rate if k >= 25 else 0.1


def moved(x: Any, k: int, rate: float) -> Any:
    return x + late(k, rate) * np.sin(x)


def of_array(rate: float) -> Any:
    rates = np.array([late(k, rate) for k in range(STEPS)])
    return lambda x, k: x + rates[k] * np.sin(x)


def of_default(rate: float) -> Any:
    def step(x: Any, k: int, by: float = rate) -> Any:
        return moved(x, k, by)

    return step


class Solver:
    def __init__(self, rate: float) -> None:
        self.parts = {"inner": [types.SimpleNamespace(), rate]}

    def step(self, x: Any, k: int) -> Any:
        return moved(x, k, self.parts["inner"][1])

    __call__ = step


def of_function(rate: float) -> Any:
    inner = [lambda k: late(k, rate)]
    return lambda x, k: x + inner[0](k) * np.sin(x)


def of_code(rate: float) -> Any:
    one, other = (lambda x, k: moved(x, k, 0.1)), (lambda x, k: moved(x, k, 0.2))
    return one if rate == 0.1 else other


def of_code_inside(rate: float) -> Any:
    if rate == 0.1:
        return lambda x, k: (lambda: moved(x, k, 0.1))()
    return lambda x, k: (lambda: moved(x, k, 0.2))()


def of_global(rate: float) -> Any:
    globals()["RATE"] = rate
    return lambda x, k: (lambda: moved(x, k, RATE))()


class OfClass:
    """A class whose attribute is a setting."""

    rate = 0.1

    @classmethod
    def at(cls, k: int) -> float:
        return late(k, cls.rate)


def of_class(rate: float) -> Any:
    OfClass.rate = rate
    return lambda x, k: x + OfClass.at(k) * np.sin(x)


class OfTheClass(OfClass):
    """An object that has the setting from a class that its own extends."""

    def step(self, x: Any, k: int) -> Any:
        return moved(x, k, self.rate)


def of_the_class(rate: float) -> Any:
    OfClass.rate = rate
    return OfTheClass().step


class InSlots:
    __slots__ = ("rate", "unset")

    def __init__(self, rate: float) -> None:
        self.rate = rate


class InFurtherSlots(InSlots):
    __slots__ = ()


def of_property(rate: float) -> Any:
    told = property(lambda _: 0.1), property(lambda _: 0.2)
    held: Any = type("Setting", (), {"rate": told[rate != 0.1]})()
    return lambda x, k: moved(x, k, held.rate)


def of_module(rate: float) -> Any:
    problem: Any = types.ModuleType("problem_of_a_user")
    problem.rate, problem.other = rate, object()
    problem.late = lambda k: late(k, problem.rate)
    return lambda x, k: x + problem.late(k) * np.sin(x)


def of_equal_settings(rate: float) -> Any:
    """As many values, each as often met before, but at other places."""
    held: Any = Solver(0.0)
    held.parts = object()  # so that its attributes are looked at one by one
    held.first, held.second, held.third = 0.1, rate, 0.2
    return lambda x, k: moved(x, k, held.second)


def held_in(holder: Any) -> Any:
    """A rate that is an attribute of an object, or stands in it by name."""

    def of(rate: float) -> Any:
        held = holder(rate=rate)
        if hasattr(held, "rate"):
            return lambda x, k: moved(x, k, held.rate)
        return lambda x, k: moved(x, k, held["rate"])

    return of


class Table:
    """What a package's table is: an array for whoever asks for one."""

    __module__ = "numpy.of_a_package"

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        return np.array([self.rate])


def vectorised(rate: float) -> Any:
    add = np.vectorize(lambda x, k: moved(x, k, rate))
    return lambda x, k: add(x, k)


DATA: dict[str, Any] = {
    "closure": lambda rate: lambda x, k: moved(x, k, rate),
    "array": of_array,
    "default": of_default,
    "partial": lambda rate: partial(lambda x, k, by: moved(x, k, by), by=rate),
    "method": lambda rate: Solver(rate).step,
    "object": Solver,
    "function": of_function,
    "code": of_code,
    "code inside": of_code_inside,
    "global": of_global,
    "vectorised": vectorised,
    "class": of_class,
    "class of an object": of_the_class,
    "slots": held_in(InSlots),
    "slots of a base": held_in(InFurtherSlots),
    "property": of_property,
    "module": of_module,
    "equal settings": of_equal_settings,
    "namespace": held_in(types.SimpleNamespace),
    "arguments": held_in(argparse.Namespace),
    "arguments inside": held_in(
        lambda rate: argparse.Namespace(of=argparse.Namespace(rate=rate), rate=rate)
    ),
    "dictionary of a kind": held_in(UserDict),
    "mapping": held_in(lambda rate: types.MappingProxyType({"rate": rate})),
    "queue": lambda rate: lambda x, k, of=deque([rate]): moved(x, k, of[0]),
    "table of a package": held_in(Table),
}


@pytest.mark.parametrize("kind", DATA)
def test_data_of_steps_that_are_not_run_again_are_compared(kind, tmp_path):
    store = lambda: STORES["disk"](tmp_path)  # noqa: E731
    with pytest.raises(Killed):
        call(program("", None) | {"step": DATA[kind](0.1)}, store(), 75)
    with pytest.raises(retape.StoreError, match="differ in .*`step`"):
        call(program("", None) | {"step": DATA[kind](0.2)}, store())
    functions = program("", None) | {"step": DATA[kind](0.1)}
    assert call(functions, store()) == call(functions)


@pytest.mark.parametrize("changed", ["x0", "steps", "plan", "key"])
def test_what_was_passed_is_named(changed, tmp_path):
    plan = retape.fixed_space(snapshots=3)

    def run(last: int | None = None, **options: Any) -> None:
        given = {"x0": np.ones(2), "plan": plan, "key": "it"} | options
        call(program("", None), STORES["disk"](tmp_path), last, **given)

    with pytest.raises(Killed):
        run(45)
    other = {"x0": np.zeros(2), "steps": 40, "plan": FEWER, "key": "another"}
    said = "snapshots=2" if changed == "plan" else changed
    with pytest.raises(retape.StoreError, match=said):
        run(**{changed: other[changed]})
    run()
    run(**{changed: other[changed]})


FEWER = retape.fixed_space(snapshots=2)


@pytest.mark.parametrize("key", [(1, 2), "two\nlines", 1.5])
def test_what_is_no_key_is_refused(key):
    with pytest.raises(retape.PlanError, match="pass one line of text or a number"):
        run_program(**program("", None), x0=np.ones(2), key=key)


NEXT = [
    *[(use, "disk", i % 2 == 0) for i, use in enumerate(USES)],
    *[("reverse_step", store, True) for store in STORES if store != "disk"],
]


@pytest.mark.parametrize(("use", "store", "reuse"), NEXT)
def test_a_run_that_is_done_makes_room_for_the_next(use, store, reuse, tmp_path):
    held = Module(tmp_path)
    functions = program(use, held.get)

    def gradient(path: str) -> Any:
        return call(functions, STORES[store](tmp_path / path), reuse=reuse)

    for i, dt in enumerate([0.1, 0.2, 0.2]):
        held.set(dt)
        right, taped = gradient(f"alone {i}")
        assert gradient("one folder") == (right, 0 if reuse and i == 2 else taped)

"""What all judges of compiled functions ask: is it what CPython computes?"""

import copy
import dataclasses
import importlib.util
import math
import pickle
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from retape import GradientTypeError, fixed_space, logarithmic, native, segments, within
from tests.judges.pairwise import pairwise

ENGINES = ("interpreter", "hybrid", "compiled")

PLANS: dict[str, Any] = {
    "default": None,
    "logarithmic": logarithmic(stage=60),
    "fixed space": fixed_space(snapshots=3, stage=90),
    "by length": segments(),
    "within": within(400_000),
}

REFUSED = native.CompileError, native.RunError, GradientTypeError


@dataclass(frozen=True)
class Cell:
    """How a function is called: one choice of each column."""

    engine: str = "interpreter"
    plan: str = "default"
    kept: bool = False
    pickled: bool = False
    in_thread: bool = False

    def __str__(self) -> str:
        flags = [n for n in ("kept", "pickled", "in_thread") if getattr(self, n)]
        return "-".join([self.engine, self.plan, *flags])


WAYS = pairwise(
    {
        "plan": tuple(PLANS),
        "kept": (False, True),
        "pickled": (False, True),
        "in_thread": (False, True),
    },
    lambda **_: True,
    seed=20261126,
)


def cells_of(rows: Sequence[str]) -> list[tuple[str, Cell]]:
    """Each row on each engine, and each engine in all ways that have been chosen."""
    return [
        (row, _cell(engine, *WAYS[(i + 2 * k) % len(WAYS)]))  # type: ignore[arg-type]
        for i, row in enumerate(rows)
        for k, engine in enumerate(ENGINES)
    ]


def _cell(engine: str, plan: str, kept: bool, *flags: bool) -> Cell:
    """A call in one of the ways; only compiled programs keep their runs."""
    return Cell(engine, plan, kept and engine == "compiled", *flags)


def fresh(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Arguments that nobody has changed yet."""
    return copy.deepcopy(args)


def plain(value: Any) -> Any:
    """A value with Python's numbers for NumPy's, which mean the same."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {each.name: plain(getattr(value, each.name)) for each in fields}
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, tuple | list):
        items = [plain(each) for each in value]
        made = type(value)
        return made(*items) if hasattr(made, "_fields") else made(items)
    return value.item() if isinstance(value, np.generic) else value


def alike(found: Any, expected: Any, rel: float = 1e-12) -> bool:
    """The same type throughout, and the same value but for rounding."""
    if type(plain(found)) is not type(plain(expected)):
        return False
    found, expected = plain(found), plain(expected)
    if isinstance(expected, dict):
        same = [*found] == [*expected]
        return same and alike(tuple(found.values()), tuple(expected.values()), rel)
    if isinstance(expected, tuple | list):
        pairs = zip(found, expected, strict=False)
        return len(found) == len(expected) and all(alike(a, b, rel) for a, b in pairs)
    if isinstance(expected, np.ndarray):
        same = found.shape == expected.shape and found.dtype == expected.dtype
        return same and np.allclose(found, expected, rel, rel, equal_nan=True)
    if isinstance(expected, float):
        close = math.isclose(found, expected, rel_tol=rel, abs_tol=1e-14)
        return close or (math.isnan(found) and math.isnan(expected))
    return found == expected


def leaves(value: Any) -> list[float]:
    """The numbers in a value, in order."""
    value = plain(value)
    if isinstance(value, np.ndarray):
        return [float(each) for each in value.ravel()]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        return [number for each in value for number in leaves(each)]
    return [float(value)]


def with_leaves(value: Any, numbers: Iterator[float]) -> Any:
    """A value like another one, of other numbers."""
    if isinstance(value, np.ndarray):
        found = [next(numbers) for _ in range(value.size)]
        return np.array(found).reshape(value.shape)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in dataclasses.fields(value)]
        parts = {n: with_leaves(getattr(value, n), numbers) for n in names}
        return type(value)(**parts)
    if isinstance(value, dict):
        return {key: with_leaves(each, numbers) for key, each in value.items()}
    if isinstance(value, tuple | list):
        items = [with_leaves(each, numbers) for each in value]
        made = type(value)
        return made(*items) if hasattr(made, "_fields") else made(items)
    return next(numbers)


def slopes(f: Callable[..., Any], args: tuple[Any, ...], which: int) -> Any:
    """The gradient by one argument, by differences of two widths, extrapolated."""
    numbers = leaves(args[which])

    def moved(place: int, h: float) -> float:
        given, changed = list(fresh(args)), list(numbers)
        changed[place] += h
        given[which] = with_leaves(args[which], iter(changed))
        return float(f(*given))

    def by(place: int) -> float:
        wide, narrow = (
            (moved(place, h) - moved(place, -h)) / (2 * h) for h in (2e-4, 1e-4)
        )
        return (4 * narrow - wide) / 3

    found = [by(place) for place in range(len(numbers))]
    return with_leaves(args[which], iter(found))


def in_its_cell(made: Any, cell: Cell, args: tuple[Any, ...], **options: Any) -> Any:
    """Call something compiled as a cell says."""
    if cell.pickled:
        made = pickle.loads(pickle.dumps(made))
    if not cell.in_thread:
        return made(*args, **options)
    found: list[Any] = []

    def call() -> None:
        try:
            found.append(made(*args, **options))
        except BaseException as error:  # noqa: BLE001 - it is raised again, below
            found.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


def judge(
    f: Callable[..., Any],
    args: tuple[Any, ...],
    by: tuple[int, ...] = (),
    cell: Cell = Cell(),  # noqa: B008 - it cannot change
    folder: Path | None = None,
) -> None:
    """The value, its type, and the gradient are those of CPython.

    Forward mode has the slope that the gradient tells, and a run that is kept in a
    folder is taken up by a second call.

    Raises:
        AssertionError: If they are not.
        retape.native.CompileError: If the function is refused.
    """
    given, expected = fresh(args), f(*fresh(args))
    made = native.function(f, engine=cell.engine)  # type: ignore[arg-type]
    found = in_its_cell(made, cell, given)
    assert alike(found, expected), f"{found!r} for Python's {expected!r}"
    assert alike(given, args), "an argument was changed"
    if not by:
        return
    derivative = native.value_and_grad(
        f,
        by,
        plan=PLANS[cell.plan],
        engine=cell.engine,  # type: ignore[arg-type]
    )
    store = {"store": folder} if cell.kept and folder is not None else {}
    value, parts = in_its_cell(derivative, cell, given, **store)
    if store:
        again = in_its_cell(derivative, cell, given, **store)
        assert alike(again, (value, parts), rel=0.0)
    assert alike(float(value), float(expected)), f"{value!r} for {expected!r}"
    for which, part in zip(by, parts, strict=True):
        wanted = slopes(f, args, which)
        assert type(plain(part)) is type(plain(wanted))
        assert np.shape(part) == np.shape(wanted)
        close = np.allclose(leaves(part), leaves(wanted), 1e-6, 1e-7)
        assert close, f"{part} for {wanted}"
    if cell.engine == "interpreter":
        chosen = random.Random(len(by))
        tangents = {i: with_leaves(args[i], iter(chosen.random, None)) for i in by}
        along = tuple(tangents.get(i) for i in range(len(args)))
        _, tangent = native.jvp(f, given, along, engine=cell.engine)
        slope = np.dot(leaves(parts), leaves(tuple(tangents.values())))
        assert np.isclose(tangent, slope, rtol=1e-9, atol=1e-9), (
            f"{tangent} for {slope}"
        )


def right_or_refused(
    f: Callable[..., Any], args: tuple[Any, ...], by: tuple[int, ...] = ()
) -> Exception | None:
    """The error by which a function is refused, or `None` where it is right.

    What Python itself raises has to be an error, too.
    """
    try:
        f(*fresh(args))
    except Exception as error:  # noqa: BLE001 - whatever Python says
        try:
            found = native.function(f, engine="interpreter")(*fresh(args))
        except REFUSED as refusal:
            return refusal
        raise AssertionError(f"{found!r} where Python raises {error!r}") from error
    try:
        judge(f, args, by)
    except REFUSED as refusal:
        return refusal
    return None


def loaded(folder: Path, name: str, text: str) -> ModuleType:
    """A module of some text, in a file, as functions are read from one."""
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

"""Options of stores that cannot be are refused when the store is made, by name."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import retape
from retape.schedule import OnlineBinomial, Schedule
from retape.storage import AsyncStore, CodecStore, RemoteStore, bounded

NOT_SECONDS = ["2", float("nan"), -1, None, True, [2]]
NOT_BYTES = ["2 seconds", float("nan"), -1, 0, True, [2]]
NOT_COUNTS = ["2", float("nan"), -1, True, 2.5]
NO_PATHS = [b"run", "a\0b", 3, None]

STORES: dict[str, Any] = {
    "memory": lambda path, **options: retape.MemoryStore(**options),
    "disk": lambda path, **options: retape.DiskStore(path, **options),
    "remote": lambda path, **options: RemoteStore(f"memory://{path}", **options),
}
OPTIONS: dict[str, list[Any]] = {
    "every": NOT_SECONDS,
    "capacity_bytes": NOT_BYTES,
    "capacity": NOT_COUNTS,
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [(k, name) for k in STORES for name in OPTIONS if (k, name) != ("memory", "every")],
)
def test_an_option_of_a_store(kind, name, tmp_path):
    for value in OPTIONS[name]:
        with pytest.raises(retape.RetapeError, match=f"`{name}="):
            STORES[kind](tmp_path, **{name: value})


@pytest.mark.parametrize("path", NO_PATHS)
def test_what_is_no_path(path):
    with pytest.raises(retape.StoreError, match="is not a path"):
        retape.DiskStore(path)


def test_options_of_wrappers(tmp_path):
    disk = retape.DiskStore(tmp_path)
    for buffer in NOT_BYTES:
        with pytest.raises(retape.RetapeError, match="`buffer="):
            AsyncStore(disk, buffer=buffer)


NUMBERS: dict[str, Any] = {
    "relative": lambda value: bounded(relative=value),
    "absolute": lambda value: bounded(absolute=value),
    "growth": lambda value: call(of=retape.diagnose, growth=value),
    "forward": lambda value: retape.StepCosts(forward=value or -1),
    "write": lambda value: retape.Tier("disk", 3, write=value or -1),
    "time_limit": lambda value: retape.interruptible(time_limit=value or -1),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_no_positive_number(name):
    """For some 0 is a number, too: they are given another one in its place."""
    infinite = [] if name in ("growth", "time_limit") else [float("inf"), 10**400]
    for value in ("2", float("nan"), 0, -1, True, [2], *infinite):
        with pytest.raises(retape.RetapeError, match=f"{name}="):
            NUMBERS[name](value)


WORDS: dict[str, Any] = {
    "split": lambda value: retape.fixed_space(snapshots=3, split=value),
    "offload": lambda value: retape.fixed_space(snapshots=3, offload=value),
    "verify": lambda value: retape.Program(abs, pow, verify=value),
    "codec": lambda value: CodecStore(retape.MemoryStore(), value),
    "placement": lambda value: OnlineBinomial(3, 1, value),
    "split ": lambda value: Schedule(10, 3, split=value),
}


@pytest.mark.parametrize("name", WORDS)
def test_what_is_none_of_a_few_words(name):
    known = " is not known. Pass '[a-z0-9-]+'( or '|, or |[.]$)"
    for value in ("foo", "", "Binomial", 3, [], ["full"], b"host", np.zeros(2)):
        with pytest.raises(retape.PlanError, match=f"^`{name.strip()}=(.|\n)*`{known}"):
            WORDS[name](value)


def of_torch(**counts: Any) -> Any:
    pytest.importorskip("torch")
    import retape.torch

    return retape.torch.recompute(**counts)


COUNTS: dict[str, Any] = {
    "snapshots": lambda value: retape.fixed_space(snapshots=value),
    "sweeps": lambda value: retape.fixed_time(sweeps=value),
    "length": lambda value: Schedule(value, 3),
    "stage": lambda value: OnlineBinomial(3, value),
    "snapshots ": lambda value: of_torch(snapshots=value),
    "stage ": lambda value: of_torch(snapshots=3, stage=value),
}


@pytest.mark.parametrize("name", COUNTS)
def test_what_is_no_count_and_what_is_one(name):
    for value in ("2", 2.0, float("nan"), -1, True, [2], np.ones(2)):
        with pytest.raises(retape.PlanError, match=f"^`{name.strip()}="):
            COUNTS[name](value)
    COUNTS[name](np.int64(2))


def call(store: Any = None, of: Any = retape.adjoint, **options: Any) -> Any:
    return of(
        retape.Program(lambda x, k: 1.5 * x, lambda x, k, g: 1.5 * g),
        np.ones(2),
        seed=np.ones_like,
        steps=6,
        store=store,
        **options,
    ).cotangent


TURNS = retape.Program(lambda x, k: x + 1, lambda x, k, g: g)
ENDED = dataclasses.replace(TURNS, done=lambda x: x >= 10)
ENTRANCES: dict[str, Any] = {
    "adjoint": lambda *given, **how: retape.adjoint(*given, seed=one, **how),
    "diagnose": lambda *given, **how: retape.diagnose(*given, seed=one, **how),
    "measure": lambda *given, **how: retape.measure(*given, seed=one, **how),
    "forward": retape.forward,
    "explain": lambda program, x0, steps=None, **how: retape.explain(
        program, x0, steps=steps or 10, **how
    ),
}


def one(x: Any) -> Any:
    return x


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize(
    "plan", [3, "abc", OnlineBinomial(3), [], *(Schedule(n, 3) for n in (6, 10, 14))]
)
def test_what_is_no_plan_of_a_run(plan: Any, entrance: str) -> None:
    """A schedule is none of a run whose end is not known, and none that is asked."""
    hidden = [True, False] if entrance == "adjoint" else [False]
    for processes in hidden:
        with pytest.raises(retape.PlanError, match="`plan="):
            ended = dataclasses.replace(ENDED, hidden=processes)
            ENTRANCES[entrance](ended, 0.0, plan=plan)
    if isinstance(plan, list | Schedule) and entrance not in ("measure", "explain"):
        fits = plan == Schedule(10, 3)
        with nullcontext() if fits else pytest.raises(retape.MachineError):
            found = ENTRANCES[entrance](TURNS, 0.0, steps=10, plan=plan)
            assert (found.value if entrance == "forward" else found.state) == 10.0
        return
    with pytest.raises(retape.PlanError, match="`plan="):
        ENTRANCES[entrance](TURNS, 0.0, steps=10, plan=plan)


PLACES: dict[str, Any] = {
    "a file": lambda path: path.write_text("a file"),
    "inside a file": lambda path: path.parent.joinpath("run").write_text("a file"),
    "a record that is a folder": lambda path: (path / "record.npz").mkdir(parents=True),
    "an older record that is a folder": lambda path: (path / "record-before.npz").mkdir(
        parents=True
    ),
    "a snapshot that is a folder": lambda path: (path / "step-000000000000.npz").mkdir(
        parents=True
    ),
    "a part that is a folder": lambda path: (path / "record.part").mkdir(parents=True),
}


@pytest.mark.parametrize("what", PLACES)
def test_a_place_that_cannot_be_used_is_an_error_that_says_what_to_do(what, tmp_path):
    path: Path = tmp_path / "run"
    PLACES[what](path)
    place = path / "inner" if what == "inside a file" else path
    with pytest.raises(retape.StoreError, match="Pass|Remove") as raised:
        call(retape.DiskStore(place))
    assert "Free" not in str(raised.value)
    with suppress(retape.StoreError):  # and nothing else
        retape.DiskStore(place).clear()

"""Regions with names, and what becomes of them by their names.

A region that is to be run again is let go as soon as it ends, whatever there is room
for: a snapshot is put where it begins and another one where it ends. One that is to be
saved is held until the backward is over. Inside of a region another one may say
otherwise: what is saved in it stays, what is run again in it is let go. One that says
the same is a part of the region around it.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial
from itertools import accumulate, chain
from threading import local
from typing import Any

from torch import nn

from retape._errors import PlanError
from retape.engines.eager._torch_compile import being_compiled
from retape.engines.eager.keep._place_snapshot import PartBegin, snapshot_here
from retape.engines.eager.record._dispatch_mode import active_recorder
from retape.engines.eager.trace._report import Region
from retape.engines.eager.trace._run import Run


@dataclass(frozen=True, slots=True)
class RegionNames:
    """A policy by the names of regions; made by `retape.torch.names`."""

    save: tuple[str, ...]
    again: tuple[str, ...]

    def decide(self, path: str) -> str:
        """`"save"` or `"again"`, or nothing, for a region: its own name or its path."""
        own = path.rpartition("/")[2]
        for word, patterns in (("save", self.save), ("again", self.again)):
            if any(fnmatchcase(each, p) for p in patterns for each in (own, path)):
                return word
        return ""

    def check(self, run: Run) -> None:
        """Refuse patterns that have named nothing.

        Raises:
            PlanError: If there is one; it names the regions that there are.
        """
        paths = [each.name for each in run.tally.regions]
        names = {each.rpartition("/")[2] for each in paths} | set(paths)
        for pattern in (*self.save, *self.again):
            if not any(fnmatchcase(each, pattern) for each in names):
                there = ", ".join(f"`{each}`" for each in sorted(names)) or "none"
                raise PlanError(
                    f"`{pattern}` names no region of what was run, whose regions are "
                    f"{there}. Put `with retape.torch.region({pattern!r})` around it, "
                    "or give modules their names with `retape.torch.name_modules`."
                )


def names(save: Collection[str] = (), again: Collection[str] = ()) -> RegionNames:
    """A policy by the names of regions, instead of by operators.

    Args:
        save: Names of regions of which everything that autograd saves is kept, whatever
            the budget, but for what the region overwrites; `*`, `?` and `[...]` stand
            for what they do in file names.
        again: Names of regions that are run again, also where there is room.

    Raises:
        PlanError: If a name is no text, or there is none; when a block is left, if a
            name is that of no region in it.

    Examples:
        >>> import torch, retape.torch
        >>> block = lambda: nn.Sequential(nn.Linear(9, 9), nn.GELU())
        >>> model = nn.Sequential(*[block() for _ in range(4)])
        >>> handle, x = retape.torch.name_modules(model), torch.ones(2, 9)
        >>> policy = names(again=["[02]"])  # every second layer
        >>> with retape.torch.recompute(memory="1MB", policy=policy) as run:
        ...     loss = model(x).tanh().sum()
        >>> [(part.state, part.regions[0]) for part in run.report.plan.parts]
        [('run again', '0'), ('kept', '1'), ('run again', '2'), ('kept', '3')]
        >>> handle.remove()
    """
    for word, found in (("save", save), ("again", again)):
        listed = isinstance(found, Collection) and not isinstance(found, str)
        if not listed or not all(isinstance(each, str) for each in found):
            raise PlanError(
                f"`{word}={found!r}` is not a list of names. Pass one, as in "
                f'`names({word}=["attention"])`.'
            )
    if not save and not again:
        raise PlanError(
            "`names()` names nothing. Say which regions to keep (`save=`), or which "
            "to run again (`again=`)."
        )
    return RegionNames(tuple(save), tuple(again))


@contextmanager
def region(name: str) -> Iterator[None]:
    """Give operators a name: as a context manager around them, or as a decorator.

    By it a policy (`retape.torch.names`) says what is kept, and `print(report.plan)`
    what is run again. Outside of a recomputation, and in compiled code, it is nothing.

    Args:
        name: Any text; regions inside of others have paths, such as `block/attention`.

    Raises:
        PlanError: If the name is no text.

    Examples:
        >>> import torch, retape.torch
        >>> x = torch.ones(3, requires_grad=True)
        >>> policy = retape.torch.names(again=["middle"])
        >>> with retape.torch.recompute(memory="1MB", policy=policy) as run:
        ...     y = x.sin()
        ...     with region("middle"):
        ...         y = y.exp().sin()
        ...     z = y.exp().sum()
        >>> z.backward()
        >>> run.report.recomputed
        1
    """
    if being_compiled():
        yield
        return
    if not isinstance(name, str) or not name:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise PlanError(f"`{name!r}` is no name of a region. Pass a text.")
    recorder = active_recorder()
    if recorder is None or recorder.paused:
        yield
        return
    run = recorder.run
    path = "/".join([*run.inside, name])
    decided = "" if run.names is None else _otherwise(run.names, run.inside, name)
    number = len(run.handle_steps)
    if decided == "again":
        snapshot_here(run)
    begin = PartBegin.here(run.trace)
    run.inside.append(name)
    try:
        yield
    finally:
        run.inside.pop()
        run.tally.regions.append(Region(path, begin.step, len(run.trace.steps)))
    if decided == "save":
        recorder.keeper.lacks(_pin(run, number, begin.step))
    elif decided:
        begin.let_go(run.trace)
    if decided:
        snapshot_here(run)


def _otherwise(names: RegionNames, inside: Sequence[str], name: str) -> str:
    """What becomes of a region, if that is not what becomes of those around it."""
    paths = accumulate([*inside, name], "{}/{}".format)
    decided = [names.decide(path) for path in paths]
    around = next(filter(None, reversed(decided[:-1])), "")
    return "" if decided[-1] == around else decided[-1]


def _pin(run: Run, number: int, begin: int) -> int:
    """Keep what was saved since a region began, but for what was overwritten in it.

    Nor is kept what was saved in a region inside that is to be run again.

    Returns:
        The bytes of what is not there any more.
    """
    trace, missing = run.trace, 0
    overwritten = {old for step in trace.steps[begin:] for old, _ in step.writes}
    inner = [each for each in run.tally.regions if each.first >= begin]
    let_go = {
        step
        for each in inner
        if run.names is not None and run.names.decide(each.name) == "again"
        for step in range(each.first, each.stop)
    }
    saved_at = {
        run.slot_of(each): run.handle_steps[each]
        for each in range(number, len(run.handle_steps))
    }
    for slot, step in saved_at.items():
        made = trace.producer[slot]  # what is saved as a result is saved a step later
        if slot in trace.held.storages:
            trace.pin_slot(slot, trace.held.storages[slot])
        elif made >= 0 and slot not in overwritten and not let_go & {step, made}:
            missing += trace.nbytes[slot]
    return missing


class _Handles:
    """Hooks that can be removed."""

    def __init__(self, handles: Collection[Any]) -> None:
        self._handles = handles

    def remove(self) -> None:
        """Take the names away again."""
        for each in self._handles:
            each.remove()


def name_modules(module: nn.Module) -> _Handles:
    """Make the forward of each part of a module a region of its name.

    Args:
        module: The module; its parts have the names of `named_modules`, and no part of
            a name is lost: `layers.3.attention` is one name.

    Returns:
        Has a `remove()`, after which they have none.

    Raises:
        PlanError: If it is no module.

    Examples:
        >>> import retape.torch
        >>> handle = name_modules(nn.Sequential(nn.Linear(2, 2)))
        >>> handle.remove()
    """
    if not isinstance(module, nn.Module):
        raise PlanError(
            f"`{module!r}` is no module, whose parts could have names. Put `with "
            "retape.torch.region(name)` around what a function does."
        )
    found = (_hooks_of(part, name) for name, part in module.named_modules() if name)
    return _Handles(list(chain.from_iterable(found)))


class _Opened(local):
    """The regions of modules whose forwards this thread is in."""

    def __init__(self) -> None:
        self.stack: list[Any] = []


_opened = _Opened()


# Functions of the module, so that one with names can be pickled.
def _hooks_of(part: nn.Module, name: str) -> tuple[Any, Any]:
    return (
        part.register_forward_pre_hook(partial(_begin_module, name)),
        part.register_forward_hook(_end_module, always_call=True),
    )


def _begin_module(name: str, module: nn.Module, args: Any) -> None:
    if not being_compiled():
        _opened.stack.append(region(name))
        _opened.stack[-1].__enter__()


def _end_module(module: nn.Module, args: Any, result: Any) -> None:
    if not being_compiled():
        _opened.stack.pop().__exit__(None, None, None)

"""Keep a budget of bytes, with few compilations.

Candidates are ranked by estimates (`_candidates`), which cost nothing but tracing. One
that is estimated to advance each step at most once, in blocks that were not cut, is
taken at its word on a CPU, where these estimates are from above. Any other is compiled
in the form that is run, and what the compiler reports is what counts:

    two scans, estimated to be cheapest, on an accelerator          at most 2
    less than the budget     as many snapshots more as there is room for    1 more
    more than the budget     as many less; what estimates as wrong allow    2 more
    still more               one snapshot: the program in whole blocks, and
                             the candidate of least estimate                2 more
    nothing estimated fits   these two, then the ordinary derivative        3 in all

What a candidate takes is remembered, for the next budget of the same program.

Sizes are quantities: a budget is divided by what a snapshot takes, and so is what the
compiler reports too much or too little. Ways to cut a function are none, since nothing
lies between two of them: these are searched (`layers/strategies/_search`).

Where arguments are spread over devices the budget is for each of them. Estimates are of
the whole program, so they are divided by how much less of the arguments is on each
device, and every candidate is compiled: only then is it known what the devices hand to
one another, and hold of one another's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax
from jax.extend import core

from retape.engines.jaxpr.codegen._compiled import Compiled
from retape.engines.jaxpr.codegen._split_blocks import max_tape_bytes
from retape.engines.jaxpr.control._settings import Settings
from retape.engines.jaxpr.jaxprs._avals import check_sizes_known, struct, varying
from retape.engines.jaxpr.jaxprs._caches import cached
from retape.engines.jaxpr.jaxprs._jax_internals import axis_names
from retape.engines.jaxpr.jaxprs._target import platform
from retape.engines.jaxpr.sizing._byte_counts import (
    compiled_temporary_bytes,
    peak_bytes,
    snapshot_bytes,
)
from retape.engines.jaxpr.sizing._candidates import (
    Candidate,
    Infeasible,
    bounded_by_length,
    candidates,
    is_good_enough,
    priced_for_device,
    refusal,
    scanned_candidates,
    sort_key,
    tapeless_candidates,
    thin_candidates,
)
from retape.engines.jaxpr.xla._standalone import Shardings, devices_sharing, is_explicit
from retape.plan._base import Plan
from retape.plan._constructors import within

_FINER = (1.5, 2, 3, 4, 6, 8, 12, 16, 32, 64)
"""How many times less a piece may tape than the hungriest block does."""
_ENOUGH = 4.0
"""A price (`sizing/_cost_model`) at which nothing cheaper is looked for on a device: a
step that is advanced twice, taped by its inputs, and the kernels of its turn."""
_TOO_HIGH = 1.5
"""Estimates of two scans are at most so many times what an H100's compiler reports:
BPTT 1.14, Navier-Stokes 1.32 (jaxlib 0.10.2)."""
_SPARE = 1024
"""For the alignment of what more snapshots bring with them."""

Compile = Callable[..., Compiled]


class SizeFit:
    """One program's candidates, and what the compiler said of those that it saw.

    Args:
        jaxpr: The program.
        active: For each input, whether a derivative by it is wanted.
        make: What compiles a program, with a limit `piece` for what blocks tape.
        places: Where the inputs are, as far as it is known.
        device: Whether the loops are the device's, which is then what is measured.
    """

    def __init__(
        self,
        jaxpr: core.ClosedJaxpr,
        active: tuple[bool, ...],
        make: Compile,
        places: Shardings | None,
        *,
        device: bool,
    ) -> None:
        self.jaxpr, self.active, self.make, self.places = jaxpr, active, make, places
        self.device = device
        self.whole = make(jaxpr, active)
        self.shared = max(
            1.0, devices_sharing(list(map(struct, jaxpr.in_avals)), places)
        )
        self.cuts: list[Compiled] = []
        self.uncut: Compiled | None = None
        self.known: dict[tuple[int, Settings], int | None] = {}

    def choose(self, plan: Plan) -> tuple[Compiled, Settings]:
        """The best that keeps to the budget.

        Raises:
            BudgetError: If nothing does; with the least that something would.
        """
        best = min(self.estimated(plan), key=sort_key)
        chosen = self.scanned(plan, best)
        if chosen is None and isinstance(best, Candidate):
            if self.is_sure(best):
                return best.compiled, best.settings
            chosen = self.held(plan, best) or self.corrected(plan, best)
        if chosen is None:
            chosen = self.lowest(plan)
        return chosen

    def guess(self, plan: Plan) -> tuple[Compiled, Settings]:
        """The best by estimates, whether it fits or not."""
        scans = scanned_candidates(plan, self.whole) if self.device else ()
        best = min([*self.estimated(plan), *scans], key=sort_key)
        return best.compiled, best.settings

    def scanned(
        self, plan: Plan, best: Candidate | Infeasible
    ) -> tuple[Compiled, Settings] | None:
        """Two scans, which nobody waits for, if they fit and are cheaper than it."""
        if not self.device:
            return None
        roomy = replace(plan, memory=int(plan.limit * self.shared * _TOO_HIGH))
        for each in sorted(scanned_candidates(roomy, self.whole), key=sort_key):
            if sort_key(each) >= sort_key(best):
                return None
            if self.fits(plan, each.compiled, each.settings):
                return each.compiled, each.settings
        return None

    def estimated(self, plan: Plan) -> list[Candidate | Infeasible]:
        """Candidates by estimates, up to one that advances each step at most once."""
        plan = replace(plan, memory=max(1, int(plan.limit * self.shared)))
        found = list(self.priced(candidates(plan, self.whole)))
        if self.device:
            found += thin_candidates(plan, self.whole)
        for finer in self.finer():
            if is_good_enough(found, _ENOUGH if self.device else 1):
                break
            found += self.priced(tapeless_candidates(plan, finer, self.whole))
        return found

    def priced(
        self, found: Iterable[Candidate | Infeasible]
    ) -> Iterable[Candidate | Infeasible]:
        """Candidates by what they cost where they are run."""
        return priced_for_device(found, self.whole) if self.device else found

    def finer(self) -> Iterator[Compiled]:
        """The program cut finer and finer, as long as that makes a difference."""
        yield from self.cuts
        dear = max_tape_bytes(self.whole.program)
        before = self.cuts[-1] if self.cuts else self.whole
        for factor in _FINER[self.levels :]:
            found = self.make(self.jaxpr, self.active, piece=int(dear / factor))
            self.levels += 1
            if len(found.code) > len(before.code):
                before = found
                self.cuts.append(found)
                yield found

    levels = 0
    """How many of the ways to cut were tried."""

    def is_sure(self, found: Candidate) -> bool:
        """Whether an estimate is enough: it is from above for the host's form on a CPU.

        For a GPU a layer's 11.25 MB by estimate were 13.01 MB (jaxlib 0.10.2).
        """
        usual = not self.device and platform() == "cpu"
        alone = usual and self.shared == 1 and not self.is_placed
        return alone and found.compiled is self.whole and found.price <= 1

    @property
    def is_placed(self) -> bool:
        """Whether more than one device has a part in the program."""
        if any(p is not None and p.num_devices > 1 for p in self.places or ()):
            return True
        return any(map(is_explicit, self.jaxpr.in_avals))

    def held(self, plan: Plan, found: Candidate) -> tuple[Compiled, Settings] | None:
        """A candidate with as many snapshots as fit by what the compiler reports."""
        compiled, settings = found.compiled, found.settings
        taken = self.bytes(compiled, settings)
        if taken is None:
            return compiled, settings
        if self.device and (other := self.measured(plan, found, taken)) is not None:
            return other
        each = max(1, int(snapshot_bytes(compiled) / self.shared))
        if taken <= plan.limit:
            more = (plan.limit - taken - _SPARE) // each
            if found.price <= 1 or more < 1:
                return compiled, settings
            return self.with_more(plan, compiled, settings, more)
        fewer = settings.snapshots + (plan.limit - taken) // each
        if fewer < 1:
            return None
        less = replace(settings, snapshots=fewer)
        return (compiled, less) if self.fits(plan, compiled, less) else None

    def measured(
        self, plan: Plan, found: Candidate, taken: int
    ) -> tuple[Compiled, Settings] | None:
        """Another stage and other snapshots, if what was estimated too high allows.

        Args:
            plan: The user's plan.
            found: A candidate with a thin tape; for any other it is `None`.
            taken: The bytes that the compiler reports for it.
        """
        estimate = peak_bytes(found.compiled, found.settings) / self.shared
        room = int((plan.limit + estimate - taken - _SPARE) * self.shared)
        others = list(thin_candidates(replace(plan, memory=max(1, room)), self.whole))
        if not any(c.compiled is found.compiled for c in others):
            return None
        best = min(others, key=sort_key)
        if best.price >= found.price and taken <= plan.limit:
            return found.compiled, found.settings
        fits = self.fits(plan, best.compiled, best.settings)
        return (best.compiled, best.settings) if fits else None

    def corrected(
        self, plan: Plan, found: Candidate
    ) -> tuple[Compiled, Settings] | None:
        """Another candidate, if estimates are as wrong as this one's was."""
        taken = self.bytes(found.compiled, found.settings)
        estimate = peak_bytes(found.compiled, found.settings) / self.shared
        if taken is None or taken > 2 * plan.limit:
            return None
        less = replace(plan, memory=max(1, int(plan.limit * estimate / taken)))
        other = min(self.estimated(less), key=sort_key)
        if isinstance(other, Infeasible):
            return None
        fits = self.fits(plan, other.compiled, other.settings)
        return (other.compiled, other.settings) if fits else None

    def with_more(
        self, plan: Plan, compiled: Compiled, settings: Settings, more: int
    ) -> tuple[Compiled, Settings]:
        """The same with more snapshots, if they fit."""
        d = bounded_by_length(settings.snapshots + more, compiled, settings.stage)
        better = replace(settings, snapshots=d)
        if d > settings.snapshots and self.fits(plan, compiled, better):
            return compiled, better
        return compiled, settings

    def lowest(self, plan: Plan) -> tuple[Compiled, Settings]:
        """One of those that may take least, or else the ordinary derivative."""
        tried: list[int] = []
        floors = self.floors()
        for compiled, settings in floors:
            taken = self.bytes(compiled, settings)
            if taken is None:
                raise refusal(plan, min(c.least for c in self.single_snapshots()))
            if taken <= plan.limit:
                each = max(1, int(snapshot_bytes(compiled) / self.shared))
                more = (plan.limit - taken - _SPARE) // each
                return self.with_more(plan, compiled, settings, max(0, more))
            tried.append(taken)
        plain = replace(floors[-1][1], plain=True)
        ordinary = self.bytes(self.whole, plain)
        if ordinary is not None and ordinary <= plan.limit:
            return self.whole, plain
        raise refusal(plan, min(*tried, ordinary or tried[0]))

    def floors(self) -> list[tuple[Compiled, Settings]]:
        """With one snapshot: the program as it is, and what is estimated to be least.

        A compiler for GPUs makes less of the first: 270 kB for Navier-Stokes, where the
        second, of finer blocks, takes 421 (an H100, jaxlib 0.10.2).
        """
        found = self.single_snapshots()
        whole = [c for c in found if c.compiled is self.whole]
        first, least = (min(each, key=lambda c: c.least) for each in (whole, found))
        both = [first] if first is least else [first, least]
        return [(c.compiled, c.settings) for c in both]

    def single_snapshots(self) -> list[Infeasible]:
        """All candidates with stages of one step and one snapshot."""
        if self.uncut is None:
            # Short loops stay one operation for the sake of time, no matter here.
            self.uncut = self.make(self.jaxpr, self.active, grain=0)
        everything = [self.whole, *self.finer(), self.uncut]
        found = [
            c
            for each in everything
            for c in tapeless_candidates(within(1), each, self.whole)
        ]
        return [c for c in found if isinstance(c, Infeasible)]

    def fits(self, plan: Plan, compiled: Compiled, settings: Settings) -> bool:
        """Whether the compiler says that the budget is kept."""
        taken = self.bytes(compiled, settings)
        return taken is not None and taken <= plan.limit

    def bytes(self, compiled: Compiled, settings: Settings) -> int | None:
        """What the compiler reports for one device, of the form that will be run."""
        settings = replace(settings, device=self.device and not settings.plain)
        key = id(compiled), settings
        if key not in self.known:
            self.known[key] = compiled_temporary_bytes(
                self.jaxpr, self.active, compiled, settings, self.places
            )
        return self.known[key]


@cached(32)
def size_fit(
    jaxpr: core.ClosedJaxpr,
    active: tuple[bool, ...],
    make: Compile,
    places: Shardings | None,
    mesh: Any,
    device: bool,
) -> SizeFit:
    """The fit of one program in one place, remembered from budget to budget."""
    del mesh
    return SizeFit(jaxpr, active, make, places, device=device)


def is_manual(jaxpr: core.ClosedJaxpr) -> bool:
    """Tell whether the program is of code for each device of a mesh."""
    return bool(axis_names(jaxpr)) or any(varying(v) for v in jaxpr.in_avals)


def fit_budget(
    plan: Plan,
    jaxpr: core.ClosedJaxpr,
    active: Sequence[bool],
    make: Compile,
    places: Shardings | None = None,
    *,
    provisional: bool = False,
) -> tuple[Compiled, Settings]:
    """Blocks and sizes that keep to a budget on each device.

    With `provisional` they are chosen by estimates alone, and nothing is refused.

    Raises:
        BudgetError: If nothing does; with the least that something would.
    """
    check_sizes_known(jaxpr.in_avals, f"`{plan}`")
    mesh = jax.sharding.get_abstract_mesh()
    device = plan.loops == "device" and not is_manual(jaxpr)
    fit = size_fit(jaxpr, tuple(active), make, places, mesh, device)
    return fit.guess(plan) if provisional else fit.choose(plan)

"""The numbers of the theory, out of binomials, plans and first actions."""

from dataclasses import fields
from math import comb

import retape
from retape import BudgetError
from retape.schedule import Advance, Chain, Restore, Schedule, Store

Counts = type(Schedule(1, 0).counts())


def beta(d, t):
    """The longest run that d snapshots and t sweeps reverse."""
    return comb(d + t, min(d, t)) if min(d, t) >= 0 else 0


def least_sweeps(n, d):
    """The fewest sweeps for n stages, as a plan says."""
    return retape.fixed_space(snapshots=d, stage=1).resolve(n).t


def least_snapshots(n, t):
    """The fewest snapshots for n stages, as a plan says."""
    return retape.fixed_time(sweeps=t, stage=1).resolve(n).d


def counts_of(record):
    """What a prediction or a report counts, without what else it says."""
    return Counts(**{each.name: getattr(record, each.name) for each in fields(Counts)})


def least_balanced(n):
    """As many snapshots as sweeps, as a plan says."""
    return retape.logarithmic(stage=1).resolve(n).d


def optimal_advances(n, d):
    """The fewest advances of n stages with d snapshots, as a schedule counts."""
    return Schedule(n, d).counts().advances


def least_stores(n, d):
    """The fewest writes among the schedules with the fewest advances."""
    return Schedule(n, d).counts().stores


def first_split(split, n, d):
    """Where the first cut of a schedule is."""
    schedule = Schedule(n, d, split=split)
    return next(action.stop for action in schedule if isinstance(action, Advance))


def treeverse_split(n, d, t):
    """The paper's equation (16), less sigma, within the interval."""
    return min(n - 1, -(-t * n // (d + t)))


def spent(actions, tiers, forward=1):
    """The cost of a stream beside taping, added up action by action.

    `forward` is the cost of a step; each tier has those of a write and of a read.
    """
    of, total = {tier.name: tier for tier in tiers}, 0.0
    for action in actions:
        match action:
            case Advance(start, stop):
                total += forward * (stop - start)
            case Store(_, _, name):
                total += of[name].write
            case Restore(_, _, name):
                total += of[name].read
    return total


def least_budget(states, tapes, keep_tapes=True):
    """The bytes that a refusal names; a chain of no steps needs none."""
    try:
        Chain([1] * len(tapes), states, tapes, 0, keep_tapes=keep_tapes)
    except BudgetError as refused:
        return refused.least
    return 0

"""The numbers of the theory, out of binomials, plans and first actions."""

from math import comb

import retape
from retape.schedule import Advance, Schedule


def beta(d, t):
    """The longest run that d snapshots and t sweeps reverse."""
    return comb(d + t, min(d, t)) if min(d, t) >= 0 else 0


def least_sweeps(n, d):
    """The fewest sweeps for n stages, as a plan says."""
    return retape.fixed_space(snapshots=d, stage=1).resolve(n).t


def least_snapshots(n, t):
    """The fewest snapshots for n stages, as a plan says."""
    return retape.fixed_time(sweeps=t, stage=1).resolve(n).d


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

"""From what a plan fixes to a stage length and a number of snapshots.

With a capsule of w bytes, r bytes of tape per step, d snapshots and stages of alpha
steps a run needs d*w + alpha*r bytes at its peak.
"""

from math import isqrt
from typing import TYPE_CHECKING, NoReturn

from retape._errors import PlanError
from retape.plan._budget_search import within_budget
from retape.plan._prediction import Bytes
from retape.schedule._binomial import beta, least_balanced, least_snapshots

if TYPE_CHECKING:
    from retape.plan._base import Plan

MANY_STEPS = 1 << 40
"""What an unknown length is taken for where a plan needs a bound: 10^12 steps."""


def pick(plan: "Plan", n: int | None, both: Bytes | None) -> tuple[int, int]:
    """alpha and d for n >= 1 steps; `Plan.resolve` trims both to what n can use.

    Args:
        plan: What is fixed.
        n: The number of steps, or `None` while it is unknown.
        both: The bytes of a capsule and of the tape of a step, if they are known.

    Raises:
        PlanError: If the plan needs something that is not known.
        BudgetError: If the bytes do not suffice.
    """
    if plan.memory is not None:
        return _of_bytes(plan, n, both)
    if plan.snapshots is not None:
        # What waits on the host is none of the bytes that a tape is weighed against.
        held = 1 if plan.offload else plan.snapshots
        alpha = stage_for_snapshots(held, *both) if both else 1
        return plan.stage or alpha, plan.snapshots
    if plan.sweeps is not None:
        return _of_sweeps(plan, n, plan.sweeps, both)
    return _balanced(plan, MANY_STEPS if n is None else n, both)


def _of_bytes(plan: "Plan", n: int | None, both: Bytes | None) -> tuple[int, int]:
    if both is None:
        raise PlanError(
            f"`within({plan.memory})` counts bytes, and neither `capsule_bytes` "
            "nor `tape_bytes` was given. Pass them, or a plan that counts "
            "snapshots, such as `fixed_space(snapshots=20)`."
        )
    return within_budget(n, *both, plan.limit)


def _of_sweeps(
    plan: "Plan", n: int | None, sweeps: int, both: Bytes | None
) -> tuple[int, int]:
    if n is None:
        refuse_unknown_length(plan.name, "number of snapshots follows from it")
    if plan.split == "bisection":
        return _halved(plan, n, sweeps)
    alpha = plan.stage
    if alpha is None and sweeps == 1:
        alpha = stage_for_segments(n, *(both or (1, 1)))
    elif alpha is None:
        alpha = stage_for_sweeps(n, sweeps, *both) if both else 1
    return alpha, least_snapshots(-(-n // alpha), sweeps)


def _halved(plan: "Plan", n: int, sweeps: int) -> tuple[int, int]:
    shortest = -(-n // (1 << sweeps))
    alpha = shortest if plan.stage is None else plan.stage
    if alpha < shortest:
        raise PlanError(
            f"`fixed_time(sweeps={sweeps}, stage={alpha}, "
            'split="bisection")` cannot be kept over '
            f"{n} steps: halving {sweeps} times leaves stages of {shortest}. "
            f"Pass `stage={shortest}` or more, or split binomially."
        )
    return alpha, max(1, (-(-n // alpha) - 1).bit_length())


def _balanced(plan: "Plan", n: int, both: Bytes | None) -> tuple[int, int]:
    if plan.stage is not None or both is None:
        alpha = plan.stage or 1
        return alpha, _least(plan, -(-n // alpha))
    if plan.offload:
        alpha = stage_for_snapshots(1, *both)
        return alpha, _least(plan, -(-n // alpha))
    d = 1
    while _least(plan, -(-n // stage_for_snapshots(d, *both))) > d:
        d += 1
    return stage_for_snapshots(d, *both), d


def _least(plan: "Plan", stages: int) -> int:
    if plan.split == "bisection":
        return max(1, (stages - 1).bit_length())
    return max(1, least_balanced(stages))


def refuse_unknown_length(kind: str, since: str) -> NoReturn:
    """Refuse a run whose length only its end tells.

    Args:
        kind: The plan.
        since: Why it needs the length.

    Raises:
        PlanError: Always.
    """
    raise PlanError(
        f"`{kind}` needs the number of steps beforehand, since its {since}, and this "
        "run tells its length only at its end. Use `fixed_space(snapshots=...)` with "
        "states only, `logarithmic()` or `within(...)`."
    )


# From bytes to a stage length --------------------------------------------------


def stage_for_snapshots(d: int, w: int, r: int) -> int:
    """max(1, floor(2*d*w / r)): the tape gets twice the bytes of the snapshots.

    A longer stage saves advances and writes, and costs only tape: three times the bytes
    that the snapshots need anyway buy stages of 2*d*w/r steps.
    """
    return max(1, 2 * d * w // r) if r else 1 << 62


def stage_for_segments(n: int, w: int, r: int) -> int:
    """The alpha that minimises (N - 1)*w + alpha*r with N = ceil(n/alpha) stages.

    Chen's square root: about alpha = sqrt(n*w/r) and N = sqrt(n*r/w), one of which is
    at most sqrt(n). Rounding moves the peak by less than w (or r), and a distance of
    delta from the smaller one, m, moves it by n/m^3 times delta^2 as much: so the
    optimum is within sqrt(m^3/n), rounded up generously. Of more than 20,000 candidates
    only the nearest are looked at: then m is above 10^7, and the peak within 10^-7 of
    the least.
    """
    if w == 0 or r == 0:
        return n if r == 0 else 1
    by_length = n * w <= n * r
    root = isqrt(n * w // r if by_length else n * r // w)
    reach = min(10_000, 3 + 2 * isqrt((root + 1) ** 3 // n))
    near = range(max(1, min(root, n) - reach), min(n, root + reach) + 1)
    # The shortest stage for each number of stages.
    counts = [-(-n // m) for m in near] if by_length else list(near)
    stages = [-(-n // count) for count in counts]
    return min(stages, key=lambda alpha: ((-(-n // alpha) - 1) * w + alpha * r, -alpha))


def stage_for_sweeps(n: int, sweeps: int, w: int, r: int) -> int:
    """The alpha of least peak bytes among those with at most `sweeps` sweeps."""
    if sweeps == 1 or w == 0 or r == 0:
        return stage_for_segments(n, w, r)
    best, best_alpha, d, reach = n * r, n, 0, 1
    while d * w < best:
        d += 1
        reach = reach * (d + sweeps) // d
        alpha = -(-n // reach)
        peak = d * w + alpha * r
        if peak < best:
            best, best_alpha = peak, alpha
        if alpha == 1:
            break
        if d == _MANY:
            d = _flat_snapshots(n, sweeps, w, r)
            alpha = -(-n // beta(d, sweeps))
            return alpha if d * w + alpha * r < best else best_alpha
    return best_alpha


_MANY = 10_000
"""The most snapshots that are tried one after another."""


def _flat_snapshots(n: int, sweeps: int, w: int, r: int) -> int:
    """The d at which d*w + n*r/beta(d, sweeps), a convex function, is least.

    Rounding alpha up moves the peak by less than r, one of more than 10^4.
    """
    low, high = 1, n
    while low < high:
        d = (low + high) // 2
        here, beyond = beta(d, sweeps), beta(d + 1, sweeps)
        if w * here * beyond >= n * r * (beyond - here):
            high = d
        else:
            low = d + 1
    return low

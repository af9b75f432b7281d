"""From bytes to a stage length.

With a capsule of w bytes, r bytes of tape per step, d snapshots and stages of alpha
steps a run needs d*w + alpha*r bytes at its peak.
"""

from math import isqrt

from retape.schedule._binomial import beta


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

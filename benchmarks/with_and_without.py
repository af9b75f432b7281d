"""What something costs: the same call with it and without, in turn.

Ratios are taken within a round, and their median is shown beside the ratio of the least
times: neighbours on the machine slow both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable


def with_and_without(seconds: Callable[[bool], float], rounds: int) -> str:
    """The milliseconds without it, and both ratios.

    Args:
        seconds: Makes the call, with it or without, and says how long that took.
        rounds: How often each is called.
    """
    pairs = [(seconds(True), seconds(False)) for _ in range(rounds)]
    ratio = statistics.median(one / other for one, other in pairs)
    best, usual = (min(times) for times in zip(*pairs, strict=True))
    return (
        f"{1e3 * usual:7.0f} ms without; with: median of ratios {ratio:.3f}, "
        f"ratio of the least {best / usual:.3f}"
    )

"""The paper's programs to the letter, Figs. 26 and 27: oracles for a stream.

Intervals are cut at arbitrary steps. One is taped whole when it has at most `alpha`
steps, or when the count of right branches (delta) or of left branches (tau) has come
down to zero. Both programs are recursive, and share nothing but `MID`.
"""

from retape.schedule import Advance, Drop, Restore, Reverse, Store


def cut(length, alpha, d, t, mid):
    """The termination and `MID`: [9, eq. (16)] or [9, eq. (12)]; 0 for a leaf."""
    if length <= alpha or d == 0 or t == 0:
        return 0
    if mid == "bisection":
        return -(-length // 2)
    return min(length - 1, -(-t * length // (d + t)))


def treeverse(lo, hi, alpha, d, t, mid, slot=0):
    """`TREEVERSE`, Fig. 26: a node walks its children leftwards."""
    split = cut(hi - lo, alpha, d, t, mid)
    if not split:
        yield Reverse(lo, hi)
        return
    yield Store(lo, slot)
    while split:
        yield Advance(lo, lo + split)
        yield from treeverse(lo + split, hi, alpha, d - 1, t, mid, slot + 1)
        yield Restore(lo, slot)
        hi, t = lo + split, t - 1
        split = cut(hi - lo, alpha, d, t, mid)
    yield Drop(lo, slot)
    yield Reverse(lo, hi)


def binary(lo, hi, alpha, d, t, mid, slot=0, stored=False):
    """`BINARY`, Fig. 27: a right branch costs a snapshot, a left branch a sweep."""
    split = cut(hi - lo, alpha, d, t, mid)
    if not split:
        if stored:
            yield Drop(lo, slot)
        yield Reverse(lo, hi)
        return
    if not stored:
        yield Store(lo, slot)
    yield Advance(lo, lo + split)
    yield from binary(lo + split, hi, alpha, d - 1, t, mid, slot + 1)
    yield Restore(lo, slot)
    yield from binary(lo, lo + split, alpha, d, t - 1, mid, slot, stored=True)

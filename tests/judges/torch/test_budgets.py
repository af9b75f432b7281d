"""Hard programs in every way to run them in a budget: what a user sees of each.

The rows are programs, the columns what a user may choose. In each cell the results are
the plain ones to the last bit, the allocator counts no more than the budget, and more
memory costs no more. Pairs of values are all tried, those of a program with some of the
columns on every change; the others and the full product are `slow`.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate, count, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import retape.torch
from retape import DiskStore, MemoryStore, RetapeError, TieredStore
from retape.storage import AsyncStore
from tests.judges.pairwise import of_new_pairs, pairs_of, pairwise
from tests.judges.torch.rows import (
    ESTIMATED,
    ROWS,
    WITH_A_LOSS,
    Outcome,
    assert_same,
    beside,
    enough,
    least,
    plain_of,
    row,
    run,
)

STORES: dict[str, Callable[[Path], Any]] = {
    "none": lambda path: None,
    "cpu": lambda path: "cpu",
    "disk": DiskStore,
    "tiers": lambda path: AsyncStore(TieredStore(MemoryStore(2), DiskStore(path))),
}
COLUMNS: dict[str, Any] = {
    "program": ROWS,
    # Of what lies between the least budget and enough; or snapshots, with `verify`.
    "share": ["least", 0.2, "1GB", "2 snapshots"],
    # The third run follows what the first has left.
    "runs": [1, 3],
    "mode": ["operators", "loop"],
    "accelerated": [False, True],
    "store": list(STORES),
    "estimated": [False, True],
}
# What `mode="loop"` can run, of the hard programs; the others it refuses by name.
LOOPS = {
    "views_and_strides", "data_dependent_branches", "python_random_and_counter",
    "lstm_cells", "scaled_dot_product", "two_live_graphs", "complex_numbers",
    "linear_algebra", "additive_chain_that_saves_nothing", "gradient_accumulation",
    "weight_shared_and_reparametrised",
}  # fmt: skip
LOOPING = {"perceptron", "heads", "scan", "skips"}
# Two blocks read one parameter in one graph: autograd adds two sums instead of one. And
# a gradient by a tensor from the middle of the block, where a loop has no graph.
NOT_IN_A_LOOP = {"graph_over_two_runs", "partial_backward"}
# A loop sees calls, not what is inside: the workspace of a fused layer, and the states
# of generators that three blocks set.
BEYOND = {
    (name, "loop") for name in ("lstm", "packed_sequences", "gradient_accumulation")
}
PLANNED = ("none", "disk")
# On every change a program runs in both recorders; other columns meet one another.
ALWAYS = {list(COLUMNS).index("accelerated")}


class Cell(NamedTuple):
    """One row in one way."""

    program: str
    share: Any
    runs: int
    mode: str
    accelerated: bool
    store: str
    estimated: bool

    def __str__(self) -> str:
        ways = [self.program, str(self.share), f"{self.runs} runs", self.mode]
        ways += ["accelerated"] * self.accelerated + ["estimated"] * self.estimated
        return "-".join(ways + [self.store] * (self.store != "none"))


def can_be(program: str, share: Any, mode: str, store: str, estimated: bool, **_: Any):
    if mode == "loop":
        return store == "none" and not estimated and program not in NOT_IN_A_LOOP
    if not estimated:
        return True
    return program in ESTIMATED and "snap" not in str(share) and store in PLANNED


CHOSEN = [Cell(*each) for each in pairwise(COLUMNS, can_be, seed=1)]
# What is known of a program stays: first runs come before it is.
CHOSEN.sort(
    # A program's first two are one run in Python and three of compiled code.
    key=lambda cell: (
        cell.program, cell.estimated, (cell.runs == 1) == cell.accelerated, cell.runs,
    )
)  # fmt: skip


@pytest.fixture(autouse=True)
def python_again() -> Iterator[None]:
    yield
    retape.torch.accelerate(False)


def limits_of(cell: Cell) -> dict[str, Any]:
    """The budget of a cell, or its snapshots."""
    if "snap" in str(cell.share):
        snapshots = int(cell.share.split()[0])
        return {"snapshots": snapshots, "stage": 6, "verify": cell.mode != "loop"}
    if cell.share == "1GB":
        return {"memory": 10**9}
    low = least(cell.program, mode=cell.mode)
    if cell.share == "least":
        return {"memory": low}
    return {"memory": low + int(cell.share * max(0, enough(cell.program) - low))}


def judge(cell: Cell, folder: Path) -> None:
    """The plain bits, and no more than the budget."""
    limits, plain = limits_of(cell), plain_of(cell.program)
    if cell.accelerated:
        retape.torch.accelerate()
    if cell.estimated:
        row(cell.program).reset()
        retape.torch.estimate(row(cell.program).loss)
    folders = (folder / str(number) for number in count())
    store = lambda: STORES[cell.store](next(folders))  # noqa: E731
    for _ in range(cell.runs):
        found = run(cell.program, store=store, mode=cell.mode, **limits)
        assert_same(plain, found.outcome)
        if "memory" in limits:
            # A loop sums the gradients of leaves beside those that are there.
            copies = 2 if cell.mode == "loop" else 1
            memory, left_out = limits["memory"], copies * beside(cell.program)
            assert all(each.peak_bytes <= memory for each in found.reports)
            # Other stores are in memory themselves.
            if cell.store in PLANNED and (cell.program, cell.mode) not in BEYOND:
                assert found.peak <= max(memory, left_out) + left_out
        assert not list(folder.rglob("step-*"))


def judge_or_refused(cell: Cell, folder: Path) -> None:
    """A loop may refuse what it cannot run; by name."""
    try:
        judge(cell, folder)
    except RetapeError as refused:
        assert cell.mode == "loop" and cell.program not in LOOPS
        assert "mode='loop'" in str(refused)


@pytest.mark.slow(
    "encoder-0.2-3 runs-operators-estimated",
    "scan-0.2-1 runs-operators-estimated-disk",
    "read_twice-1GB-1 runs-operators-accelerated-estimated-disk",
    "heads-1GB-1 runs-operators-accelerated-estimated-disk",
)
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize(
    "cell", of_new_pairs(CHOSEN, lambda one, other: one > 0 or other in ALWAYS), ids=str
)
def test_bits_and_bytes(cell: Cell, tmp_path: Path) -> None:
    judge_or_refused(cell, tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("program", ROWS)
def test_all_ways_of_a_program(program: str, tmp_path: Path) -> None:
    cells = product([program], *list(COLUMNS.values())[1:])
    for number, cell in enumerate(map(Cell._make, cells)):
        if can_be(**cell._asdict()) and cell not in CHOSEN:
            judge_or_refused(cell, tmp_path / str(number))


@pytest.mark.slow(
    *(name for name in ESTIMATED if name != "functional"), "sparse_gradients"
)
@pytest.mark.parametrize("program", [*ESTIMATED, "sparse_gradients"])
def test_the_plan_of_another_program_takes_no_more(program: str) -> None:
    """Which one it is shows at the end of a part: up to there the budget holds, too."""
    low = least(program)
    budgets = [low + int(share * max(0, enough(program) - low)) for share in (0, 0.2)]
    for other in ESTIMATED if program != "functional" else ["spectral_norms"]:
        row(other).reset()
        retape.torch.estimate(row(other).loss)
        for memory in budgets:
            reports = run(program, memory=memory).reports
            assert all(each.peak_bytes <= memory for each in reports), other


def test_each_value_meets_each_of_every_other_column() -> None:
    found = {pair for cell in CHOSEN for pair in pairs_of(cell)}
    for name in ROWS:
        ways = {(0, name)}
        assert {pair[1] for pair in found if pair[0] in ways} >= {
            *((1, share) for share in COLUMNS["share"]),
            *((2, runs) for runs in COLUMNS["runs"]),
            *((4, fast) for fast in COLUMNS["accelerated"]),
            *((5, store) for store in STORES),
        }
    assert len(CHOSEN) < len(ROWS) * 5


WAYS: dict[str, dict[str, Any]] = {
    # How often it runs in a budget, and in what; the work of the last is looked at.
    "by rules": {"runs": 1},
    "by a plan": {"runs": 2},
    "estimated": {"runs": 1},
    "loop": {"runs": 1, "mode": "loop"},
    "disk": {"runs": 2, "store": "disk"},
}
# Snapshots are put where few bytes cross, so the work falls in jumps of a block: it may
# rise again by so much of a forward. Plans take the least cost, not the fewest steps.
JUMP, BUDGETS = 0.45, 5


def work_in_budgets(program: str, way: str, folder: Path) -> list[float]:
    """Forwards that are run again, in budgets from the least to enough."""
    options = dict(WAYS[way])
    runs, store = options.pop("runs"), STORES[options.pop("store", "none")]
    low = least(program, mode=options.get("mode", "operators"))
    room, work = max(0, enough(program) - low), list[float]()
    if way == "estimated":
        row(program).reset()
        retape.torch.estimate(row(program).loss)
    # No budget of another test, in which there is a plan by now.
    own = 4 * (list(WAYS).index(way) + 1)
    budgets = [low + room * k // (BUDGETS - 1) + own for k in range(BUDGETS)]
    for k, memory in enumerate([*budgets, 10**9]):
        for number in range(runs):
            reports = run(
                program,
                lambda number=number, k=k: store(folder / f"{k} {number}"),
                memory=memory,
                **options,
            ).reports
        steps = sum(each.steps for each in reports)
        work.append(sum(each.recomputed for each in reports) / steps)
    return work


def rise(work: list[float]) -> float:
    """How far a number rises above the least before it."""
    return max(
        now - best for now, best in zip(work, accumulate(work, min), strict=True)
    )


# Each way on every change, and models that take less than a second.
QUICK = {
    ("functional", "by rules"), ("random_3", "by rules"), ("functional", "by a plan"),
    ("hooked", "estimated"), ("functional", "disk"), ("skips", "loop"),
    ("lstm_cells", "loop"),
}  # fmt: skip
CURVES = [
    pytest.param(name, way, marks=[pytest.mark.slow] * ((name, way) not in QUICK))
    for name in [*WITH_A_LOSS, "lstm_cells"]
    for way in WAYS
    if (way != "estimated" or name in ESTIMATED)
    and (way != "loop" or name in LOOPS | LOOPING)
]


@pytest.mark.parametrize(("program", "way"), CURVES)
def test_more_memory_is_no_more_work(program: str, way: str, tmp_path: Path) -> None:
    work = work_in_budgets(program, way, tmp_path)
    assert rise(work) <= JUMP
    # A loop that keeps all of its states still runs each call again for its backward.
    assert way == "loop" or work[-1] <= work[0]


def test_the_comparison_sees_one_bit() -> None:
    plain = plain_of("lstm_cells")
    changed = [each.clone() for each in plain.tensors]
    changed[1][0] = torch.nextafter(changed[1][0], torch.tensor(9.0))
    with pytest.raises(AssertionError, match="tensor 1 differs"):
        assert_same(plain, Outcome(changed, plain.state))


def test_the_measure_sees_a_broken_budget() -> None:
    ample = run("perceptron", memory="1GB")
    assert ample.peak > 2 * least("perceptron")


def test_a_dearer_run_in_more_memory_is_seen() -> None:
    assert rise([0.9, 0.2, 0.7]) == pytest.approx(0.5)

"""Schedules of runs whose length is known, as comparable data that iterates lazily."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from retape._errors import PlanError
from retape.schedule._action import Action
from retape.schedule._binomial import beta, least_sweeps
from retape.schedule._cost import Counts, binomial_counts, rule_counts
from retape.schedule._repr_html import schedule_html
from retape.schedule._split import Split, bisection_sweeps, paper_rule, stage_rule
from retape.schedule._tree import Tree, TreeName, binary_tree, n_ary_tree
from retape.schedule._whole import settle


@dataclass(frozen=True, slots=True)
class Schedule:
    """The divide-and-conquer schedule of `length` steps in stages.

    Iterating it yields actions, each time anew, in O(snapshots) memory; the object
    itself is five small values that can be compared, printed and pickled.

    Args:
        length: Steps to reverse.
        snapshots: Slots, the start state's included.
        stage: Steps taped at a time.
        split: Where intervals are cut.
        tree: How the actions are found; both trees yield the same ones.

    Examples:
        >>> from retape.schedule import Schedule
        >>> for action in Schedule(2, snapshots=1):
        ...     print(action)
        Store(step=0, slot=0, tier='memory')
        Advance(start=0, stop=1)
        Reverse(start=1, stop=2)
        Restore(step=0, slot=0, tier='memory')
        Drop(step=0, slot=0, tier='memory')
        Reverse(start=0, stop=1)
    """

    length: int
    snapshots: int
    stage: int = 1
    split: Split = "binomial"
    tree: TreeName = "n-ary"

    def _repr_html_(self) -> str:
        """Counts and a picture, for notebooks."""
        return schedule_html(self)

    def __post_init__(self) -> None:
        settle(self, "length", "snapshots", "stage")
        _one_of("split", self.split, get_args(Split))
        _one_of("tree", self.tree, get_args(TreeName))
        _at_least("length", self.length, 0)
        _at_least("stage", self.stage, 1)
        # A run of a single stage needs no slot.
        _at_least("snapshots", self.snapshots, 1 if self.length > self.stage else 0)

    @property
    def stages(self) -> int:
        """ceil(length / stage)."""
        return -(-self.length // self.stage)

    @property
    def sweeps(self) -> int:
        """t: the most times that a step is advanced.

        The least t with beta(snapshots, t) >= stages, except that a bisection has its
        own.
        """
        if self.stages <= 1:
            return 0
        if self.split == "bisection":
            return bisection_sweeps(self.stages, self.snapshots)
        return least_sweeps(self.stages, self.snapshots)

    def __iter__(self) -> Iterator[Action]:
        make = binary_tree if self.tree == "binary" else n_ary_tree
        slots, rule = range(self.snapshots + 1), stage_rule(self.split)
        tree = Tree(self.length, self.stage, slots, rule)
        return make(tree, self.snapshots, self.sweeps)

    def counts(self) -> Counts:
        """The counts of a replay, in closed form or by recurrence."""
        if self.split == "binomial":
            return binomial_counts(self.length, self.stage, self.snapshots)
        rule = stage_rule(self.split)
        return rule_counts(self.length, self.stage, self.snapshots, self.sweeps, rule)


@dataclass(frozen=True, slots=True)
class PaperTree:
    """The paper's `TREEVERSE` or `BINARY` to the letter, Figs. 26 and 27.

    Intervals are cut at arbitrary steps, and one is taped whole when it has at most
    `alpha` steps or either count has come down to zero. `Schedule` cuts at multiples
    of the stage length instead, and always goes on down to single stages.

    Args:
        length: n.
        alpha: Most steps of a leaf while delta and tau last.
        d: Initial delta: right branches, hence snapshots.
        t: Initial tau: left branches, hence sweeps.
        mid: `MID`, [9, eq. (16)] or [9, eq. (12)].
        tree: `TREEVERSE` ("n-ary") or `BINARY`.

    Examples:
        >>> from retape.schedule import PaperTree, replay
        >>> replay(PaperTree(10, alpha=1, d=8, t=2), 10).advances
        13
    """

    length: int
    alpha: int
    d: int
    t: int
    mid: Literal["binomial", "bisection"] = "binomial"
    tree: TreeName = "n-ary"

    def __post_init__(self) -> None:
        settle(self, "length", "alpha", "d", "t")
        _one_of("mid", self.mid, ("binomial", "bisection"))
        _one_of("tree", self.tree, get_args(TreeName))
        for name, value, least in (
            ("length", self.length, 0),
            ("alpha", self.alpha, 1),
            ("d", self.d, 0),
            ("t", self.t, 0),
        ):
            _at_least(name, value, least)

    @staticmethod
    def stage_for(length: int, d: int, t: int) -> int:
        """alpha = ceil(n / eta(d, t)), the paper's eq. (23).

        Examples:
            >>> PaperTree.stage_for(1000, 3, 3)
            50
        """
        return max(1, -(-length // beta(d, t)))

    def __iter__(self) -> Iterator[Action]:
        make = binary_tree if self.tree == "binary" else n_ary_tree
        rule = paper_rule(self.alpha, self.mid)
        return make(Tree(self.length, 1, range(self.d + 1), rule), self.d, self.t)

    def counts(self) -> Counts:
        """The counts of a replay."""
        rule = paper_rule(self.alpha, self.mid)
        root = self.length, 1, self.d, self.t
        return rule_counts(*root, rule, to_single_stages=False)


def _at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise PlanError(
            f"`{name}={value}` cannot be: it counts "
            f"{_COUNTED[name]}, of which there must be at least {least}."
        )


def _one_of(name: str, value: object, names: tuple[str, ...]) -> None:
    if value not in names:
        raise PlanError(
            f"`{name}={value!r}` is not known. Pass one of "
            f"{', '.join(map(repr, names))}."
        )


_COUNTED = {
    "length": "the steps of a run",
    "stage": "the steps taped at a time",
    "snapshots": "the snapshots alive at once, the start state's included",
    "alpha": "the steps of a leaf",
    "d": "snapshots",
    "t": "sweeps",
}

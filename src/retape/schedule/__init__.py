"""Schedules: pure mathematics, integers in, actions out."""

from ._action import Action as Action
from ._action import Advance as Advance
from ._action import Drop as Drop
from ._action import Restore as Restore
from ._action import Reverse as Reverse
from ._action import Store as Store
from ._binomial import beta as beta
from ._binomial import least_balanced as least_balanced
from ._binomial import least_snapshots as least_snapshots
from ._binomial import least_stores as least_stores
from ._binomial import least_sweeps as least_sweeps
from ._binomial import optimal_advances as optimal_advances
from ._check import replay as replay
from ._cost import Counts as Counts
from ._cost import binomial_counts as binomial_counts
from ._offline import PaperTree as PaperTree
from ._offline import Schedule as Schedule
from ._split import Split as Split
from ._split import binomial_split as binomial_split
from ._split import bisection_split as bisection_split
from ._split import treeverse_split as treeverse_split
from ._tree import TreeName as TreeName

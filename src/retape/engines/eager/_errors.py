"""Errors of a program that is run twice.

RetapeError
├── MachineError(RuntimeError)
│   ├── MutationError         an input of the trace was overwritten behind its back
│   ├── RecomputeDepthError   a chain longer than `max_recompute_depth`
│   └── DeterminismError      (of the common tree) a replayed value differs
├── BudgetError               (of the common tree) a budget below the least possible
└── UnsupportedError          (of the common tree) an op that cannot be replayed
"""

from retape._errors import BudgetError as BudgetError
from retape._errors import DeterminismError as DeterminismError
from retape._errors import MachineError
from retape._errors import PlanError as PlanError
from retape._errors import UnsupportedError as UnsupportedError


class MutationError(MachineError):
    """A tensor that the program read was overwritten before its backward."""


class RecomputeDepthError(MachineError):
    """A value lies deeper under its checkpoints than was allowed."""

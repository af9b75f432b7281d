"""Reverse-mode gradients in sublinear memory, for programs with no annotation.

This package is the framework-free part: plans, stores, errors, and `adjoint` for step
functions in plain Python. The gradients of whole programs are in `retape.jax`,
`retape.torch` and `retape.vlad`, each of which loads its framework.
"""

from ._adjoint import Adjoint as Adjoint
from ._adjoint import adjoint as adjoint
from ._errors import BudgetError as BudgetError
from ._errors import DeterminismError as DeterminismError
from ._errors import GradientTypeError as GradientTypeError
from ._errors import LanguageError as LanguageError
from ._errors import MachineError as MachineError
from ._errors import MissingPackageError as MissingPackageError
from ._errors import PlanError as PlanError
from ._errors import RetapeError as RetapeError
from ._errors import ScheduleError as ScheduleError
from ._errors import SnapshotError as SnapshotError
from ._errors import StoreError as StoreError
from ._errors import UnsupportedError as UnsupportedError
from ._hosted_plans import chain as chain
from ._hosted_plans import tiers as tiers
from ._plan import Plan as Plan
from ._plan import Prediction as Prediction
from ._plan import Resolved as Resolved
from ._plans import fixed_space as fixed_space
from ._plans import fixed_time as fixed_time
from ._plans import logarithmic as logarithmic
from ._plans import segments as segments
from ._plans import within as within
from .driver import Progress as Progress
from .driver import Report as Report
from .schedule import TierCosts as TierCosts
from .storage import DiskStore as DiskStore
from .storage import MemoryStore as MemoryStore
from .storage import TieredStore as TieredStore

__version__ = "0.1.0"

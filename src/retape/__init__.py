"""Reverse-mode gradients in sublinear memory, for programs with no annotation.

This package is the framework-free part: plans, stores, errors, and `adjoint` for step
functions in plain Python. The gradients of whole programs are in `retape.jax`,
`retape.torch` and `retape.vlad`, each of which loads its framework.
"""

import importlib as _importlib
import typing as _typing

from retape._errors import BudgetError as BudgetError
from retape._errors import DeterminismError as DeterminismError
from retape._errors import GradientTypeError as GradientTypeError
from retape._errors import LanguageError as LanguageError
from retape._errors import MachineError as MachineError
from retape._errors import MissingPackageError as MissingPackageError
from retape._errors import PlanError as PlanError
from retape._errors import RetapeError as RetapeError
from retape._errors import RetapeWarning as RetapeWarning
from retape._errors import RunInterrupted as RunInterrupted
from retape._errors import ScheduleError as ScheduleError
from retape._errors import SnapshotError as SnapshotError
from retape._errors import StoreError as StoreError
from retape._errors import UnsupportedError as UnsupportedError

if _typing.TYPE_CHECKING:
    from retape._adjoint import Adjoint as Adjoint
    from retape._adjoint import adjoint as adjoint
    from retape._adjoint import explain as explain
    from retape._adjoint import measure as measure
    from retape._diagnose._diagnose import diagnose as diagnose
    from retape._forward import forward as forward
    from retape.driver._interrupt import interruptible as interruptible
    from retape.driver._steps._check_adjoint import check_adjoint as check_adjoint
    from retape.driver._steps._program import Program as Program
    from retape.plan._base import Plan as Plan
    from retape.plan._constructors import fixed_space as fixed_space
    from retape.plan._constructors import fixed_time as fixed_time
    from retape.plan._constructors import logarithmic as logarithmic
    from retape.plan._constructors import segments as segments
    from retape.plan._constructors import within as within
    from retape.plan._scheduled import chain as chain
    from retape.plan._tiers import tiers as tiers
    from retape.schedule._tier import StepCosts as StepCosts
    from retape.schedule._tier import Tier as Tier
    from retape.storage._disk import DiskStore as DiskStore
    from retape.storage._memory import MemoryStore as MemoryStore
    from retape.storage._tiered import TieredStore as TieredStore
    from retape.storage._trees._kinds import register_state as register_state

__version__ = "0.1.0"

_HOMES = {
    name: f"retape.{module}"
    for module, names in {
        "_adjoint": ("Adjoint", "adjoint", "explain", "measure"),
        "_diagnose._diagnose": ("diagnose",),
        "_forward": ("forward",),
        "driver._steps._check_adjoint": ("check_adjoint",),
        "driver._interrupt": ("interruptible",),
        "driver._steps._program": ("Program",),
        "plan._base": ("Plan",),
        "plan._scheduled": ("chain",),
        "plan._constructors": (
            *("fixed_space", "fixed_time", "logarithmic", "segments", "within"),
        ),
        "plan._tiers": ("tiers",),
        "schedule._tier": ("StepCosts", "Tier"),
        "storage._disk": ("DiskStore",),
        "storage._memory": ("MemoryStore",),
        "storage._tiered": ("TieredStore",),
        "storage._trees._kinds": ("register_state",),
    }.items()
    for name in names
}
"""Where each name is, which is loaded when it is first used: `import retape` by itself
loads neither NumPy nor what runs a program."""

_PACKAGES = ("driver", "plan", "schedule", "storage")

_PARTS = (
    *("jax", "torch", "nnx", "vlad", "native", "viz", "testing", "interop"),
    *("diffrax", "equinox", "optimistix", "transformers", "lightning"),
)

_ELSEWHERE = {
    **dict.fromkeys(("grad", "value_and_grad", "vjp"), "jax"),
    **dict.fromkeys(("checkpoint", "checkpointed", "policies", "advise"), "jax"),
    **dict.fromkeys(("scan", "fori_loop", "while_loop"), "jax"),
    **dict.fromkeys(("recompute", "estimate", "checkpoint_sequential"), "torch"),
    **{"function": "native", "remat_scan": "nnx", "timeline": "viz"},
    **{"check_machine": "testing", "check_store": "testing", "Schedule": "schedule"},
}
"""Names that newcomers look for here, and where they are."""

if not _typing.TYPE_CHECKING:  # else any name would be one for a type checker

    def __getattr__(name: str) -> object:
        if name in _HOMES:
            found = getattr(_importlib.import_module(_HOMES[name]), name)
            globals()[name] = found
            return found
        if name in _PACKAGES:
            return _importlib.import_module(f"retape.{name}")
        if name in _PARTS:
            raise AttributeError(
                f"`retape.{name}` is not loaded by `import retape`, which loads no "
                f"framework. Write `import retape.{name}` beside it."
            )
        if name in _ELSEWHERE:
            part = f"retape.{_ELSEWHERE[name]}"
            raise AttributeError(
                f"`retape` has no `{name}`. Write `import {part}`, then "
                f"`{part}.{name}`."
            )
        raise AttributeError(f"module 'retape' has no attribute {name!r}")

    def __dir__() -> list[str]:
        return sorted({*globals(), *_HOMES, *_PACKAGES})

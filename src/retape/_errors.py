"""Every exception that Retape raises on purpose, and its one warning.

    RetapeError
    ├── PlanError(ValueError)          a plan or an option that cannot be
    │   └── BudgetError                a budget below the least possible
    ├── ScheduleError(ValueError)      a stream of actions that is not a schedule
    ├── MachineError(RuntimeError)     a machine that broke its protocol
    │   ├── DeterminismError           a recomputed state differs from its first run
    │   ├── MutationError              an input was overwritten before its backward
    │   └── RecomputeDepthError        a chain of recomputations that is too long
    ├── RunInterrupted(RuntimeError)   a run that was ended early, and can go on
    ├── StoreError(OSError)            a store that cannot be written or used
    │   └── SnapshotError              a snapshot that is missing or damaged
    ├── GradientTypeError(TypeError)   a function or argument that has no gradient
    ├── UnsupportedError(RuntimeError) a program with something that cannot be re-run
    ├── MissingPackageError(ModuleNotFoundError)    a framework that is not installed
    └── LanguageError(ValueError)      a VLAD program that is wrong

Each also inherits the builtin that it refines, so that `except ValueError` goes on
working. Messages say what was passed, why it cannot be, and what to do.

`RetapeWarning(UserWarning)` is for a plan or a policy that a program leaves without
effect: the result is right, and the memory is not what was asked for.
"""


class RetapeError(Exception):
    """Base of every error that Retape raises on purpose."""


class PlanError(RetapeError, ValueError):
    """A plan, or an option of one, that is not valid."""


class BudgetError(PlanError):
    """A memory budget below the least with which the program can be reversed.

    Attributes:
        least: The least budget in bytes that would do; None where it is not known.

    Examples:
        >>> import retape
        >>> try:
        ...     retape.within("1 kB").resolve(100, capsule_bytes=800, tape_bytes=500)
        ... except retape.BudgetError as error:
        ...     print(error.least)
        1300
    """

    def __init__(self, message: str, least: int | None = None) -> None:
        super().__init__(message)
        self.least = least


class ScheduleError(RetapeError, ValueError):
    """A stream of actions that breaks the rules of a schedule."""


class MachineError(RetapeError, RuntimeError):
    """A machine that broke its side of the protocol."""


class DeterminismError(MachineError):
    """A recomputed state that differs from the first run's."""


class MutationError(MachineError):
    """A tensor that a program read was overwritten before its backward."""


class RecomputeDepthError(MachineError):
    """A value lies deeper under its checkpoints than `max_recompute_depth`."""


class RunInterrupted(RetapeError, RuntimeError):
    """A run that was ended at a signal or a time limit; the same call goes on.

    Attributes:
        reason: What ended it, such as "SIGTERM".
        exit_code: 75, which `sysexits.h` names for "try again later".
    """

    exit_code = 75

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


class StoreError(RetapeError, OSError):
    """A store that cannot be written, read or used."""


class SnapshotError(StoreError):
    """A snapshot that is missing, damaged or foreign; an earlier one may replace it."""


class GradientTypeError(RetapeError, TypeError):
    """A function or an argument of which no gradient can be taken."""


class UnsupportedError(RetapeError, RuntimeError):
    """A program with something in it that cannot be run twice or reversed."""

    # No `TypeError`: operators such as `+` and `==` of PyTorch take one for their own,
    # and go on without its text, or with an answer (`False`).


class MissingPackageError(RetapeError, ModuleNotFoundError):
    """A framework that is not installed; the message says how it can be.

    Attributes:
        name: The package that is missing.
    """


class LanguageError(RetapeError, ValueError):
    """A program of VLAD, or a compiled Python function, that is wrong.

    Attributes:
        message: What is wrong, without the place.
        where: The place, with `line` and `column`; None for a fault of no place.
        chain: The places of the calls under way, the innermost first.
    """


class RetapeWarning(UserWarning):
    """A plan, a policy or an option without effect, or lost work that is done again.

    Values and gradients are right all the same. The message names what has no effect,
    why, and the way round. `warnings.simplefilter("error", retape.RetapeWarning)` turns
    it into an error.
    """

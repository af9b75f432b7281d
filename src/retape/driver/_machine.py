"""The interface of a program to the driver: the paper's Fig. 12 as six methods.

The paper interrupts a computation after a number of steps (`INTERRUPT`), resumes it
from the capsule (`RESUME`), and counts its steps (`PRIMOPS`). Every engine offers these
as a `Machine`, and the one loop in `driver._loop` needs nothing else. Mixed schedules,
which keep tapes in slots, need a `TapingMachine`: three methods more.
"""

from typing import Any, Protocol, SupportsIndex, TypeVar

from retape._errors import MachineError, PlanError

C = TypeVar("C")
A = TypeVar("A")
R_co = TypeVar("R_co", covariant=True)


class Machine(Protocol[C, A, R_co]):
    """A program that can be run a few steps at a time, taped and reversed.

    `C` is a capsule, `A` a cotangent, `R_co` the final result; the driver looks into
    none of them. Capsules are *values*: no method may change one that it was given,
    because a snapshot of it may be used again, unless the machine is an
    `OverwritingMachine`. Steps are numbered from 0, and a capsule
    "before step k" is the state after k steps.

    **Where the program's value comes from.** The last stage is never advanced, only
    taped, so the value first exists inside the `reverse` call whose cotangent is
    `None`. The machine keeps it there, seeds its own sweep with it, and hands it out
    in `finish`, typically as `(value, gradient)`.

    **What accumulates** over steps (cotangents of parameters that every step reads)
    travels inside the cotangent `A`. A machine that is to be taken up again by another
    process, after a crash, carries its output there too: then capsules and one
    cotangent are all that has to be kept on disk.

    **What it may have besides**: `tape`, `sweep` and `tape_nbytes`, so that slots may
    hold tapes; `copy_capsule`, if it overwrites the memory of its capsules; `to_store`,
    if what is stored has another form; `resume`, if it wants to know that an earlier
    process has begun its run.
    """

    def length(self) -> int | None:
        """The number of steps, or `None` if only running the program can tell."""
        ...

    def start(self) -> C:
        """The capsule before step 0."""
        ...

    def advance(self, capsule: C, steps: int) -> tuple[C, SupportsIndex]:
        """Run up to `steps` steps (at least 1) without a tape.

        Returns:
            The new capsule, and how many steps were really made. Fewer than `steps`
            means that the program ended there; 0 means that it had ended already. When
            the length is known the driver never asks for steps beyond the end and does
            not look at the count, so a count that lives on a device is waited for only
            in the forward sweep of a run of unknown length.
        """
        ...

    def reverse(self, capsule: C, steps: int, cotangent: A | None) -> A:
        """Tape `steps` steps from `capsule` and sweep them back.

        Args:
            capsule: The state before the stage.
            steps: The number of steps in it; 0 only for a program of no steps.
            cotangent: That of the state after the stage, with all that accumulates;
                `None` for the very last stage: the machine then keeps the program's
                output and seeds the sweep from it.

        Returns:
            The cotangent of the state before the stage.
        """
        ...

    def nbytes(self, capsule: C) -> int:
        """The bytes that keeping this capsule takes."""
        ...

    def finish(self, cotangent: A) -> R_co:
        """Turn the cotangent of the start state into the caller's result."""
        ...


class TapingMachine(Machine[C, A, R_co], Protocol[C, A, R_co]):
    """A machine whose tapes can be held, and swept back later.

    A tape is a value, like a capsule. It is asked for stages only after which the run
    goes on; the last stage of a run is always reversed at once. `sweep` after `tape`
    must give the bits that `reverse` gives. For a store on disk a tape is a tree of
    arrays and plain values.
    """

    def tape(self, capsule: C, steps: int) -> tuple[Any, C]:
        """Run `steps` steps with a tape: the tape, and the capsule after them."""
        ...

    def sweep(self, tape: Any, steps: int, cotangent: A) -> A:
        """Sweep a tape back.

        Args:
            tape: What `tape` returned.
            steps: The number of steps on it.
            cotangent: That of the state after the stage, with all that accumulates.

        Returns:
            The cotangent of the state before the stage.
        """
        ...

    def tape_nbytes(self, tape: Any) -> int:
        """The bytes that keeping this tape takes."""
        ...


class OverwritingMachine(Machine[C, A, R_co], Protocol[C, A, R_co]):
    """A machine whose capsules lie in memory that its program overwrites.

    A capsule that it returns may be overwritten by its next call, and one that it is
    given by this one. The driver copies what it keeps.
    """

    def copy_capsule(self, capsule: C) -> C:
        """The same capsule in memory that no call overwrites."""
        ...


class PackingMachine(Machine[C, A, R_co], Protocol[C, A, R_co]):
    """A machine whose capsules and cotangents have another form in a store.

    On a device, say, they stay there while the run goes on, and only what is stored or
    recorded crosses to the host. Its methods take both forms.
    """

    def to_store(self, tree: Any) -> Any:
        """A capsule or a cotangent in the form for the store."""
        ...


class ResumedMachine(Machine[C, A, R_co], Protocol[C, A, R_co]):
    """A machine that wants to know that an earlier process has begun its run."""

    def resume(self, step: int, turned: bool) -> None:
        """Go on from `step`, in the forward sweep or, if `turned`, after it."""
        ...


class KnownMachine(Machine[C, A, R_co], Protocol[C, A, R_co]):
    """A machine whose runs are known by what they do.

    A process that takes its run up goes on only if the steps that it runs again give
    the bits that they gave (`driver._resume`).
    """

    def sign(self, capsule: C, after: C) -> C:
        """A capsule with a digest of the state one step later."""
        ...

    def agrees(self, capsule: C, after: C) -> bool:
        """Whether one step later is what a capsule was signed with, if it was."""
        ...

    def recorded(self, cotangent: A) -> Any:
        """What a record has of a cotangent: what leads to it, and a digest."""
        ...

    def taken_up(self, found: Any, length: int | None) -> A | None:
        """The cotangent that this leads to; `None` if it is another one."""
        ...


def offers(machine: object, kind: type) -> bool:
    """Tell whether a machine has what such a kind has besides.

    It is asked as it is called, so that a machine may be an object around another one,
    with a `__getattr__`: `isinstance` asks Python 3.12's way, which finds none of that.

    Examples:
        >>> from retape.driver import ToyMachine
        >>> toy = ToyMachine(3)
        >>> offers(toy, TapingMachine), offers(toy, OverwritingMachine)
        (True, False)
    """
    besides = (name for name in vars(kind) if not name.startswith("_"))
    return all(callable(getattr(machine, name, None)) for name in besides)


def cannot_tape(machine: object) -> PlanError:
    """The refusal of a schedule that keeps tapes."""
    return PlanError(
        f"this schedule keeps tapes in slots, and a `{type(machine).__name__}` cannot "
        "hold one: it has no `tape`, `sweep` and `tape_nbytes` (see "
        "`retape.driver.Machine`). Leave `store` out of the plan, so that slots "
        "hold states only."
    )


METHODS = ("length", "start", "advance", "reverse", "nbytes", "finish")
"""What every machine has."""


def check_machine(machine: object) -> None:
    """Refuse what is no machine.

    Raises:
        MachineError: If a method is lacking.
    """
    missing = [f"`{n}`" for n in METHODS if not callable(getattr(machine, n, None))]
    if missing:
        raise MachineError(
            f"`{type(machine).__name__}` is not a machine: it has no "
            f"{', '.join(missing)}. See "
            "`retape.driver.Machine` for what each is given and returns."
        )

"""The friendly front of the driver: a step function and its adjoint."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import index
from types import CodeType
from typing import Any, Generic, SupportsIndex, TypeAlias, TypeVar, cast

from ._errors import MachineError, PlanError, StoreError
from ._plan import Plan
from ._plans import fixed_space
from .driver import Progress, Report, Verify, run
from .storage import SnapshotStore, copy_tree, fingerprint, freeze, tree_nbytes

X = TypeVar("X")
G = TypeVar("G")

_Capsule: TypeAlias = tuple[int, Any]

_READ_ONLY = (
    "States are read-only in `retape.adjoint`, because a snapshot may be used again. "
    "Pass `in_place=True` if `step` changes its argument."
)

_Tape: TypeAlias = tuple[int, list[Any]]
"""The first step, and what the adjoint of each step needs."""


@dataclass(frozen=True, slots=True)
class Adjoint(Generic[X, G]):
    """What `retape.adjoint` returns.

    Attributes:
        state: The state after the last step.
        cotangent: The cotangent of the start state.
        report: What was done.
    """

    state: X
    cotangent: G
    report: Report


def adjoint(
    step: Callable[[X, int], X],
    reverse_step: Callable[[Any, int, G], G],
    x0: X,
    *,
    seed: Callable[[X], G],
    steps: int | None = None,
    done: Callable[[X], bool] | None = None,
    tape: Callable[[X, int], tuple[X, Any]] | None = None,
    plan: Plan | None = None,
    store: SnapshotStore[Any] | None = None,
    in_place: bool = False,
    verify: Verify | None = None,
    progress: bool | Callable[[Progress], None] = False,
) -> Adjoint[X, G]:
    """Run a simulation forward and its adjoint backward, in bounded memory.

    States and cotangents are NumPy arrays or trees of them: tuples, lists, dictionaries
    with string keys, numbers.

    Args:
        step: From the state before step k, and k, to the state after it.
        reverse_step: From the state before step k, k and the cotangent of the state
            after it, to the cotangent of the state before it. Gradients of parameters
            are accumulated in the cotangent.
        x0: The start state.
        seed: From the last state to its cotangent.
        steps: The number of steps; or
        done: a predicate: the run ends at the first state for which it is true.
        tape: From the state before step k, and k, to the state after it and all that
            the adjoint of the step needs, a tree of arrays; `reverse_step` is given
            this in the place of the state. Without it a step's tape is the state
            before it. It is called once more, for step 0, to measure a tape.
        plan: How memory and time are traded; by default
            `retape.fixed_space(snapshots=20)`.
        store: Where snapshots go. With a `DiskStore` or a `TieredStore` a run that was
            killed is taken up again by the same call, and gives the same bits. The
            same call means the same code of all functions passed, x0, number of steps
            and plan; variables and files that they read must not have changed.
        in_place: `step` changes its argument. Otherwise states are made read-only, so
            that a step which does so by mistake is an error.
        verify: "cheap" or "full": compare recomputed states with the first pass.
        progress: `True` for a bar, or a function that is told.

    With d snapshots in memory and alpha steps in a stage no more than d + max(alpha, 2)
    + 1 states are alive at once: the snapshots; the tape, or the two states of a step
    that is advanced; and the last state of the run, which is part of the result. While
    the length is unknown they are d + max(alpha + 1, 4), because the driver keeps a
    state until it is known that another stage follows. What `step` makes inside it,
    x0 itself and the cotangent come on top; `in_place` adds a copy.

    Returns:
        The last state, the cotangent of x0 and a `Report`.

    Example:
        The derivative of x -> x**8 at 1.5, as three squarings.

        >>> import retape
        >>> result = retape.adjoint(
        ...     step=lambda x, k: x * x,
        ...     reverse_step=lambda x, k, g: 2 * x * g,
        ...     x0=1.5,
        ...     seed=lambda x: 1.0,
        ...     steps=3,
        ... )
        >>> result.state, result.cotangent
        (25.62890625, 136.6875)
    """
    if (steps is None) == (done is None):
        raise PlanError(
            f"`steps={steps}` and `done={done}`: pass one of them, the number of steps "
            "or a predicate that is true at the end."
        )
    if steps is not None:
        steps = _count(steps)
    functions = _functions(step, reverse_step, seed, done, tape)
    machine = _StepMachine(step, reverse_step, x0, seed, steps, done, in_place, tape)
    outcome = run(
        machine,
        fixed_space(snapshots=20) if plan is None else plan,
        store=store,
        tape_bytes=machine.step_tape_nbytes(),
        progress=progress,
        verify=verify,
        fingerprint=fingerprint if verify else None,
        label=_label(functions, x0, steps) if store else "",
    )
    state, cotangent = outcome.result
    return Adjoint(state, cotangent, outcome.report)


def _count(steps: object) -> int:
    """A number of steps, which may be an integer of NumPy's."""
    try:
        count = -1 if isinstance(steps, bool) else index(cast("SupportsIndex", steps))
    except TypeError:
        count = -1
    if count < 0:
        raise PlanError(
            f"`steps={steps!r}` cannot be: a run has no steps, or some. Pass an "
            "integer."
        )
    return count


def _functions(*functions: object) -> Sequence[object]:
    """The functions of a run; what cannot be called is named."""
    names = ("step", "reverse_step", "seed", "done", "tape")
    for name, function in zip(names, functions, strict=True):
        missing = function is None and name in ("done", "tape")
        if not callable(function) and not missing:
            raise PlanError(
                f"`{name}={function!r}` is not a function. `retape.adjoint` calls it: "
                "see its documentation for what it is given and returns."
            )
    return functions


def _label(functions: Sequence[object], x0: object, steps: int | None) -> str:
    """What a durable store knows a run by."""
    codes = [_code(function) for function in functions]
    code = fingerprint([*codes, x0]).hex()
    step = functions[0]
    name = getattr(step, "__qualname__", type(step).__name__)
    return f"{name} (code and start state {code}), steps={steps}"


def _code(function: object) -> str:
    """What a function is: its bytecode, so that an edited one is another run.

    Functions inside it, its defaults and what `functools.partial` binds are seen; the
    variables that it reads are not, since a run may change them as it goes.
    """
    if isinstance(function, partial):
        bound: tuple[object, ...] = function.args, sorted(function.keywords.items())
        return f"{_code(function.func)} {_constant(bound)}"
    code = getattr(function, "__code__", None)
    if code is None:
        return type(function).__qualname__
    return f"{_constant(code)} {_constant(getattr(function, '__defaults__', None))}"


def _constant(value: object) -> str:
    """A value that a function was made with, as a text that every process writes."""
    if isinstance(value, CodeType):
        inside = " ".join(map(_constant, value.co_consts))
        return f"{value.co_code.hex()} {value.co_names!r} {inside}"
    if isinstance(value, tuple | list):
        return f"({' '.join(map(_constant, cast('Sequence[object]', value)))})"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        return repr(value)
    try:
        return fingerprint(value).hex()
    except StoreError:
        return type(value).__qualname__


@dataclass(frozen=True, slots=True)
class _StepMachine(Generic[X, G]):
    """The `TapingMachine` of a Python step function. A capsule is (k, state)."""

    step: Callable[[X, int], X]
    reverse_step: Callable[[Any, int, G], G]
    x0: X
    seed: Callable[[X], G]
    steps: int | None
    done: Callable[[X], bool] | None
    in_place: bool
    taping: Callable[[X, int], tuple[X, Any]] | None

    def length(self) -> int | None:
        return self.steps

    def start(self) -> _Capsule:
        return 0, self._own(copy_tree(self.x0))

    def advance(self, capsule: _Capsule, steps: int) -> tuple[_Capsule, int]:
        first, x = capsule
        if self.in_place:
            x = copy_tree(x)
        for k in range(first, first + steps):
            if self.done is not None and self.done(x):
                return (k, x), k - first
            x = self._after(x, k)
        return (first + steps, x), steps

    def _after(self, x: X, k: int) -> X:
        """The state after step k."""
        try:
            after = self.step(x, k)
        except ValueError as error:
            if "read-only" in str(error) and not self.in_place:
                error.add_note(_READ_ONLY)
            raise
        if after is None:
            raise MachineError(
                f"`step` returned `None` for step {k}. Return the state after the "
                "step, also where it is the argument, changed in place."
            )
        return self._own(after)

    def reverse(
        self, capsule: _Capsule, steps: int, cotangent: tuple[X, G] | None
    ) -> tuple[X, G]:
        first, x = capsule
        if cotangent is None:
            tape, (_, x) = self.tape(capsule, steps)
            return self.sweep(tape, steps, (x, self.seed(x)))
        if self.taping is not None:
            tape, _ = self.tape(capsule, steps)
        else:
            # The state after the stage is not needed: the last step is not run.
            (_, kept), (_, x) = self.tape(capsule, steps - 1)
            tape = first, [*kept, x]
        return self.sweep(tape, steps, cotangent)

    def tape(self, capsule: _Capsule, steps: int) -> tuple[_Tape, _Capsule]:
        first, x = capsule
        kept: list[Any] = []
        for k in range(first, first + steps):
            before = copy_tree(x) if self.in_place else x
            if self.taping is None:
                kept.append(x)
                x = self._after(before, k)
            else:
                x, made = self._taped(before, k)
                freeze(made)
                kept.append(made)
                self._own(x)
        return (first, kept), (first + steps, x)

    def _taped(self, x: X, k: int) -> tuple[X, Any]:
        assert self.taping is not None
        pair: Any = self.taping(x, k)
        if not isinstance(pair, tuple) or len(cast("tuple[Any, ...]", pair)) != 2:
            raise MachineError(
                f"`tape` returned a `{type(pair).__name__}` for step {k}. Return a "
                "tuple of two: the state after the step, and what its adjoint needs."
            )
        return cast("tuple[X, Any]", pair)

    def sweep(self, tape: _Tape, steps: int, cotangent: tuple[X, G]) -> tuple[X, G]:
        (first, kept), (last, g) = tape, cotangent
        for k in range(first + steps - 1, first - 1, -1):
            g = self.reverse_step(kept[k - first], k, g)
            if g is None:
                raise MachineError(
                    f"`reverse_step` returned `None` for step {k}. Return the "
                    "cotangent of the state before the step."
                )
        return last, g

    def tape_nbytes(self, tape: _Tape) -> int:
        return tree_nbytes(tape[1])

    def step_tape_nbytes(self) -> int:
        """The bytes of a step's tape, measured on the first step."""
        ended = self.steps == 0 or (self.done is not None and self.done(self.x0))
        if self.taping is None or ended:
            return tree_nbytes(self.x0)
        return self.tape_nbytes(self.tape(self.start(), 1)[0])

    def nbytes(self, capsule: _Capsule) -> int:
        return tree_nbytes(capsule[1])

    def finish(self, cotangent: tuple[X, G]) -> tuple[X, G]:
        return cotangent

    def _own(self, x: X) -> X:
        if not self.in_place:
            freeze(x)
        return x

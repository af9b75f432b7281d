"""The machine of a step function and its adjoint, whatever they are written in.

*Whose memory is it?* A real code works in buffers: a step changes its argument, or
returns one of two buffers in turn, or writes where it was told only to read (C and
Fortran know nothing of NumPy's read-only flag). So what a function of the user's
returns is *live*: the next call may overwrite it. What a slot, a tape or the result
holds must never be live. Nothing about a function can be known beforehand, so the rule
does not depend on it:

1. the working state may be live; it is passed on from step to step without a copy;
2. what is kept is copied: into a slot, on to a tape, into the result;
3. what is given to the user's functions is not needed any more, or is a copy.

That is a copy for each `Store`, each `Restore` of a slot that is read again, and each
taped step but the last one of a stage; advances copy nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, cast

from retape._errors import MachineError
from retape.driver._steps._cotangent_form import CotangentForm, looked_at
from retape.driver._steps._program import Program, add_term, is_true
from retape.driver._steps._step_records import (
    End,
    FirstSizes,
    LastStep,
    Recorded,
    StepCapsule,
    StepTape,
    Swept,
)
from retape.storage import copy_tree, fingerprint, tree_nbytes
from retape.storage._trees._form import UNKNOWN, Form, form_of
from retape.storage._trees._tree import (
    has_tensors,
    with_graph,
    without_graph,
)

X = TypeVar("X")
G = TypeVar("G")


@dataclass(slots=True)
class StepMachine(Generic[X, G]):
    """The `TapingMachine` of Python functions.

    Attributes:
        program: What the user passed.
        x0: The start state; never passed to a function, and never changed.
        steps: The number of steps, if it is known.
        seed: From the last state to its cotangent, if it is known.
        signs: Whether a later process will compare what the functions do.
        observed: The first step whose state has not been observed.
        turned: Whether a stage has been reversed: from then on all is a repetition.
        tensors: Whether states have tensors, which autograd may record: a graph that
            leads from state to state would keep all of them.
        first_sizes: What a budget was shared out by, if there is one.
        form: What cotangents look like.
        forms: What the states of taped steps look like, where tapes do not tell.
        end: The last stage, taped, before it is swept.
    """

    program: Program[X, G]
    x0: X
    steps: int | None
    seed: Callable[[X], G] | None = None
    signs: bool = False
    observed: int = field(default=0, init=False)
    turned: bool = field(default=False, init=False)
    tensors: bool = field(default=False, init=False)
    first_sizes: FirstSizes | None = field(default=None, init=False)
    form: CotangentForm = field(default_factory=CotangentForm, init=False)
    forms: dict[int, Form] = field(default_factory=dict[int, Form], init=False)
    end: End | None = field(default=None, init=False)

    def length(self) -> int | None:
        return self.steps

    def start(self) -> StepCapsule:
        cost = None if self.program.cost is None else 0.0
        return StepCapsule(0, copy_tree(self.x0), cost, False)

    def copy_capsule(self, capsule: StepCapsule) -> StepCapsule:
        k, x, cost, *_ = capsule
        return StepCapsule(k, looked_at(copy_tree, x, _STATE, k), cost, False)

    def resume(self, step: int, turned: bool) -> None:
        """Go on where an earlier process was: states before `step` are repetitions."""
        self.observed, self.turned = step, turned

    def advance(self, capsule: StepCapsule, steps: int) -> tuple[StepCapsule, int]:
        of, (first, x, cost, live, _) = self.program, capsule
        stop = first + steps
        self.tensors = looked_at(has_tensors, x, _STATE, first)
        watched = of.cost is not None or of.observe is not None
        if of.done is not None or (watched and not self.turned):
            for k in range(first, stop):
                if of.done is not None and is_true(of.done(x), k):
                    return StepCapsule(k, x, cost, live), k - first
                cost = self._passed(x, k, cost)
                x, live = self._after(x, k), True
        elif of.many is not None:
            x = self._some(of.many(x, first, stop), "many", first)
        else:
            step: Any = of.one_step
            for k in range(first, stop):
                x = step(x, k)
                if x is None or self.tensors:
                    x = self._some(x, "step", k)
        return StepCapsule(stop, x, cost, True), steps

    def reverse(
        self, capsule: StepCapsule, steps: int, cotangent: Swept | None
    ) -> Swept:
        if cotangent is None:
            return self._turn(capsule, steps)
        if self.program.tape is not None:
            return self.sweep(self.tape(capsule, steps)[0], steps, cotangent)
        if steps == 1:
            first, x, _, live, _ = capsule
            kept = [self._held(x, first, live)]
            return self.sweep(StepTape(first, kept), 1, cotangent)
        # The state after the stage is not needed: the last step is not run.
        (first, kept), (_, x, _, live, _) = self.tape(capsule, steps - 1)
        kept.append(self._held(x, first, live))
        return self.sweep(StepTape(first, kept), steps, cotangent)

    def _held(self, x: X, k: int, live: bool) -> X:
        """A state in memory of our own."""
        return looked_at(copy_tree, x, _STATE, k) if live else x

    def tape(self, capsule: StepCapsule, steps: int) -> tuple[StepTape, StepCapsule]:
        first, x, cost, live, _ = capsule
        self.tensors = looked_at(has_tensors, x, _STATE, first)
        kept: list[Any] = []
        for k in range(first, first + steps):
            cost = self._passed(x, k, cost)
            x, needed = self._taped(x, k, live)
            kept.append(needed)
            live = True
        return StepTape(first, kept), StepCapsule(first + steps, x, cost, live)

    def sweep(self, tape: StepTape, steps: int, cotangent: Swept) -> Swept:
        self.turned = True
        (first, kept), g, of = tape, cotangent.cotangent, self.program
        form, told = self.form, of.tape is not None and of.cost_gradient is None
        last = cotangent.last
        form.take_up(g)
        for k in range(first + steps - 1, first - 1, -1):
            needed, more = kept[k - first], None
            if k == first and self.signs:
                last = LastStep(k, copy_tree(needed), copy_tree(g))
            if of.cost_gradient is not None:
                needed, x = needed if of.tape is not None else (needed, needed)
                # Before `reverse_step`, which may overwrite the state.
                state = form.of_state(x)
                more = self._cost_gradient(x, k)
            else:
                state = self.forms.pop(k, UNKNOWN) if told else form.of_state(needed)
            g = of.reverse_step(needed, k, g)
            if g is None:
                raise MachineError(
                    f"`reverse_step` returned `None` for step {k}. Return the "
                    "cotangent of the state before the step."
                )
            form.follow(g, state, "reverse_step", k)
            if more is not None:
                g = form.add(g, more, k)
        # Until the next stage steps are run, which may use the memory that it is in.
        return cotangent._replace(cotangent=copy_tree(g), last=last)

    def sign(self, capsule: StepCapsule, after: StepCapsule) -> StepCapsule:
        return capsule._replace(after=self._done_by(capsule, after))

    def agrees(self, capsule: StepCapsule, after: StepCapsule) -> bool:
        return not capsule.after or capsule.after == self._done_by(capsule, after)

    def _done_by(self, capsule: StepCapsule, after: StepCapsule) -> str:
        """A digest of what a step does, and of the cost of the state before it."""
        cost, (k, x, *_) = self.program.cost, capsule
        term = None if cost is None else cost(x, k)
        return fingerprint((after.step, after.state, term)).hex()

    def recorded(self, cotangent: Swept) -> Recorded:
        # The cotangent itself follows from the last step, if there was one.
        last, g = cotangent.last, cotangent.cotangent
        digest = fingerprint(g).hex()
        kept = cotangent._replace(cotangent=g if last is None else None)
        return Recorded(kept, digest)

    def taken_up(self, found: Any, length: int | None) -> Swept | None:
        swept, digest = Recorded(*found)
        if length is not None and not self._begins_alike(swept, length):
            return None
        if swept.last is not None:
            k, kept, g = swept.last
            given = swept._replace(cotangent=g)
            swept = self.sweep(StepTape(k, [kept]), 1, given)
        return swept if fingerprint(swept.cotangent).hex() == digest else None

    def _begins_alike(self, swept: Swept, n: int) -> bool:
        """Whether the last state is one, and leads to the cotangent that it led to."""
        x, done = copy_tree(swept.state), self.program.done
        if done is not None and not is_true(done(x), n):
            return False
        return fingerprint(self._begin(x, swept.state, n)).hex() == swept.begun

    def first_step(self) -> str:
        """A digest of what the first step does; nothing if there is none."""
        of, start = replace(self.program, observe=None), self.start()
        once: StepMachine[Any, Any] = StepMachine(of, self.x0, self.steps)
        if self.steps == 0:
            return ""
        after, made = once.advance(start, 1)
        if not made:
            return ""
        tape = None if of.tape is None else once._taped(self.start().state, 0, True)[1]
        return self._done_by(self.start(), after) + fingerprint(tape).hex()

    def tape_nbytes(self, tape: StepTape) -> int:
        return tree_nbytes(tape.kept)

    def step_tape_nbytes(self) -> int:
        """The bytes of a step's tape, measured on the first step."""
        if self.program.tape is None:
            return tree_nbytes(self.x0)
        start = self.start()
        done = self.program.done
        if self.steps == 0 or (done is not None and is_true(done(start.state), 0)):
            return tree_nbytes(self.x0)
        _, needed = self._taped(self.start().state, 0, True)
        return tree_nbytes(needed)

    def nbytes(self, capsule: StepCapsule) -> int:
        found: int = looked_at(tree_nbytes, capsule[1], _STATE, capsule[0])
        if self.first_sizes is not None:
            self.first_sizes.compare("state", capsule[0], found)
        return found

    def finish(self, cotangent: Swept) -> Swept:
        return cotangent

    def fingerprint(self, capsule: StepCapsule) -> bytes:
        """A digest of a capsule: of its step and its state."""
        return fingerprint((capsule[0], capsule[1]))

    def _turn(self, capsule: StepCapsule, steps: int) -> Swept:
        """The last stage: tape it, keep the output and seed the sweep from it."""
        if self.end is None:
            self.reach_end(capsule, steps)
        assert self.end is not None
        (tape, n, last, cost), self.end = self.end, None
        g = self._begin(copy_tree(last), last, n)
        begun = fingerprint(g).hex() if self.signs else ""
        return self.sweep(tape, steps, Swept(last, cost, g, begun))

    def reach_end(self, capsule: StepCapsule, steps: int) -> StepCapsule:
        """Tape the last stage; what stands for its start, until it is swept."""
        tape, (n, x, cost, *_) = self.tape(capsule, steps)
        cost = self._passed(x, n, cost)
        self.end = End(tape, n, looked_at(copy_tree, x, _STATE, n), cost)
        return StepCapsule(tape.first, None, None, False)

    def _begin(self, x: X, last: X, n: int) -> Any:
        """The cotangent of the last state, which the functions may overwrite."""
        of = self.program
        more = None if of.cost_gradient is None else self._cost_gradient(x, n)
        # The seed may be the state itself, or a buffer that steps write to.
        g = None
        if self.seed is not None:
            g = looked_at(copy_tree, self.seed(x), "`seed` returned for step", n)
        begun = more if g is None else g
        if begun is None:
            name = "cost_gradient" if self.seed is None else "seed"
            raise MachineError(
                f"`{name}` returned `None` for the last state. Return its cotangent."
            )
        self.form.begin(begun, last)
        return begun if g is None or more is None else self.form.add(g, more, n)

    def _passed(self, x: X, k: int, cost: Any) -> Any:
        """Show the state before step k to the user's functions, the first time."""
        of = self.program
        if of.observe is not None and not self.turned and k >= self.observed:
            of.observe(copy_tree(x), k)
            self.observed = k + 1
        if of.cost is not None and not self.turned:
            cost = add_term(cost, of.cost(x, k), k)
            cost = without_graph(cost) if has_tensors(cost) else cost
        return cost

    def _cost_gradient(self, x: X, k: int) -> Any:
        """The derivative of a cost term, in memory of our own."""
        assert self.program.cost_gradient is not None
        found = self.program.cost_gradient(x, k)
        return looked_at(copy_tree, found, "`cost_gradient` returned for k =", k)

    def _after(self, x: X, k: int) -> X:
        """The state after step k."""
        return self._some(self.program.one_step(x, k), "step", k)

    def _some(self, after: Any, name: str, k: int) -> Any:
        """A state that is one."""
        if after is None and not self.program.hidden:
            raise MachineError(
                f"`{name}` returned `None` for step {k}. Return the state after the "
                "step, also where it is the argument, changed in place."
            )
        return without_graph(after) if self.tensors else after

    def _taped(self, x: X, k: int, live: bool) -> tuple[X, Any]:
        """The state after step k, and what its adjoint needs, in memory of our own."""
        of, before = self.program, None
        if of.tape is None or of.cost_gradient is not None:
            # One of the two is kept, the other one given away.
            other = looked_at(copy_tree, x, _STATE, k)
            x, before = (x, other) if live else (other, x)
        if of.tape is None:
            if self.first_sizes is not None:
                self.first_sizes.compare("state", k, tree_nbytes(before))
            return self._after(x, k), before
        if of.cost_gradient is None:
            self.forms[k] = form_of(x)
        pair: Any = of.tape(x, k)
        if not _is_pair(pair):
            raise MachineError(
                f"`tape` returned a `{type(pair).__name__}` for step {k}. Return a "
                "tuple of two: the state after the step, and what its adjoint needs."
            )
        after, needed = pair
        after = self._some(after, "tape", k)
        if self.tensors and with_graph(needed):
            raise MachineError(
                f"`tape` returned a tensor for step {k} that is part of autograd's "
                "graph, and a tape is copied: the copy would have no graph. Return the "
                "numbers that the adjoint needs, detached, and let `reverse_step` "
                "build the graph; or let autograd do all of it with `retape.torch`."
            )
        needed = looked_at(copy_tree, needed, "`tape` returned for step", k)
        if self.first_sizes is not None:
            self.first_sizes.compare("tape", k, tree_nbytes(needed))
        return after, needed if of.cost_gradient is None else (needed, before)


_STATE = "the state before step"


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(cast("tuple[Any, ...]", value)) == 2

"""Running recorded steps again.

Which steps are needed for some slots is found by walking back from these slots to
values that are held; steps that nobody asks for are not run. A step that overwrites a
value that somebody else holds works on a copy.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from retape.engines.eager.trace._fingerprint import (
    check_exposed,
    check_foreign,
    check_replayed,
    clear,
)
from retape.engines.eager.trace._geometry import (
    Geometry,
    below_autograd,
    refuse_proxies,
    tensor_on,
)
from retape.engines.eager.trace._holdings import native_for
from retape.engines.eager.trace._random_state import RandomStates
from retape.engines.eager.trace._step import made_by, steps_making
from retape.engines.eager.trace._trace import Trace


@contextmanager
def default_dtype() -> Iterator[None]:
    """Put the default type of numbers back that steps have set."""
    before = torch.get_default_dtype()
    try:
        yield
    finally:
        if torch.get_default_dtype() is not before:
            torch.set_default_dtype(before)


def needed_steps(trace: Trace, wanted: Iterable[int]) -> list[int]:
    """The steps that make the wanted slots of what is held, in order."""
    producer, steps, storages = trace.producer, trace.steps, trace.held.storages
    module = native_for(trace)
    if module is not None:
        return module.needed_steps(steps, producer, storages, list(wanted))
    return sorted(
        steps_making(wanted, storages, producer, lambda step: steps[step].reads)
    )


class Replay:
    """One run of some steps, from held and foreign slots to the wanted ones."""

    def __init__(
        self,
        trace: Trace,
        needed: list[int],
        wanted: Collection[int],
    ) -> None:
        self._trace = trace
        self._needed = needed
        self._wanted = wanted
        self._roots: dict[int, Tensor] = {}
        self._own: set[int] = set()
        self._overwritten: dict[int, Tensor] = {}
        self._random = RandomStates()

    def run(self) -> dict[int, Tensor]:
        """The wanted slots, as root tensors."""
        refuse_proxies()
        if self._trace.exposed:
            check_exposed(self._trace, self._needed)
        wanted = self._wanted
        with below_autograd(), self._random, default_dtype():
            self._run_steps()
            for slot in wanted:
                if slot not in self._roots and slot not in self._overwritten:
                    self.root_of(slot)
            return {**self._roots, **self._overwritten}

    def _run_steps(self) -> None:
        trace, roots = self._trace, self._roots
        module = native_for(trace)
        if module is not None and not trace.verify:
            module.run_steps(
                trace.steps, trace.roots, self._needed, self._wanted, trace.random,
                self, roots, self._own, self._step,
            )  # fmt: skip
            return
        dying = self._last_uses()
        for index in self._needed:
            self._step(index)
            for slot in dying.get(index, ()):
                roots.pop(slot, None)

    def _last_uses(self) -> dict[int, list[int]]:
        """For each step, the slots that nobody reads after it."""
        seen = set(self._wanted)
        dying: dict[int, list[int]] = {}
        for index in reversed(self._needed):
            step = self._trace.steps[index]
            last = [slot for slot in step.reads if slot not in seen]
            last += [slot for slot in made_by(step) if slot not in seen]
            if last:
                seen.update(last)
                dying[index] = last
        return dying

    def root_of(self, slot: int) -> Tensor:
        """The whole storage of a slot, as a tensor."""
        root = self._roots.get(slot)
        if root is None:
            trace = self._trace
            known = trace.noted(slot).input
            if known is not None:
                root = known.value()
                if trace.verify:
                    check_foreign(trace, slot)
            else:
                root = tensor_on(trace.held.storages[slot], trace.roots[slot])
                if trace.streams.several:
                    trace.streams.take_in(root)
            self._roots[slot] = root
        return root

    def draw_as_before(self, index: int) -> None:
        """A step is about to draw, from the state in which it found its generator."""
        state = self._trace.random.get(index)
        if state is not None:
            self._random.set(*state)

    def _step(self, index: int) -> None:
        trace, roots = self._trace, self._roots
        step = trace.steps[index]
        signature = step.signature
        for old, _ in step.writes:
            self._own_copy(old)
        self.draw_as_before(index)
        given: list[tuple[Tensor, Geometry]] = [
            (self.root_of(slot), trace.roots[slot]) for slot in step.reads
        ]
        if signature.dtype is not torch.get_default_dtype():
            torch.set_default_dtype(signature.dtype)
        torch._C._set_grad_enabled(signature.grad)
        result, tensors = signature.run(given)
        torch._C._set_grad_enabled(False)
        if trace.verify and signature.kind.uninitialised:
            clear(result, trace.nbytes[step.writes[0][0]] if step.writes else 0)
        outputs = signature.outputs
        if signature.single:
            roots[step.first] = result
            self._own.add(step.first)
        else:
            for slot, output in enumerate(outputs, step.first):
                roots[slot] = result[output]
                self._own.add(slot)
        for old, new in step.writes:
            self._own.add(new)
            root = roots.pop(old)
            if signature.kind.resizes:  # the root itself may have been, or its storage
                given_root = tensors[step.reads.index(old)]
                root = tensor_on(given_root.untyped_storage(), trace.roots[new])
            roots[new] = root
        if trace.verify:
            for slot in made_by(step):
                check_replayed(trace, index, slot, roots[slot])

    def _own_copy(self, slot: int) -> None:
        """Before an overwrite: others may hold the storage, or want the old value."""
        if slot in self._own and slot not in self._wanted:
            return
        root = self.root_of(slot)
        if slot in self._wanted:
            self._overwritten[slot] = root
        copy = root.untyped_storage().clone()
        self._roots[slot] = tensor_on(copy, self._trace.roots[slot])

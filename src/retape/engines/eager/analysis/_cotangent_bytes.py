"""The bytes that going back takes beside what was saved: of a step, and of all."""

from collections.abc import Sequence
from itertools import accumulate

from retape.engines.eager.trace._step import Signature, made_by
from retape.engines.eager.trace._trace import Trace


def cotangent_bytes(
    trace: Trace, index: int, signature: Signature, reads: Sequence[int], made: range
) -> int:
    """The bytes that going back through a step may need at once, beside what it saved:

    cotangents of what it reads and makes, and what its formula makes on the way. Then
    come the sums, of which some begin as tensors of their own.
    """
    if signature.passive:
        return 0
    results = sum(trace.nbytes[made.start : made.stop]) - signature.scratch_bytes
    # A formula that is not lean sums the cotangent of a smaller operand in the end.
    lean = signature.lean
    inputs: dict[int, int] = {}
    largest = results
    given = zip(reads, signature.differentiable, signature.sizes, strict=True)
    for slot, flag, size in given:
        if flag:  # several reads of one slot have a cotangent each
            largest = max(largest, size)
            inputs[slot] = inputs.get(slot, 0) + (size if lean else max(size, results))
    summed = (trace.nbytes[s] for s in inputs if trace.noted(s).apart > index)
    formula = results + _formula_bytes(trace, signature, reads, made, largest)
    cotangents = sum(_given_back(trace, *each) for each in inputs.items())
    return cotangents + max(formula, *summed, 0)


def step_cotangents(trace: Trace, index: int) -> int:
    """The bytes that going back through a recorded step may need at once."""
    step = trace.steps[index]
    return cotangent_bytes(trace, index, step.signature, step.reads, made_by(step))


def _given_back(trace: Trace, slot: int, size: int) -> int:
    """The bytes that the cotangents of what a step reads of a slot come to.

    That of a part is put into one of the whole.
    """
    whole = trace.nbytes[slot]
    if trace.producer[slot] < 0 or size >= whole:
        return max(whole, size)
    return size + whole


def _formula_bytes(
    trace: Trace, signature: Signature, reads: Sequence[int], made: range, largest: int
) -> int:
    """Temporary bytes of the backward formula of a step."""
    if signature.copying:  # the images are copied once more on the way back
        kernel = kernel_bytes(trace, signature, reads, made)
        return kernel + signature.sizes[0] + signature.reverse_workspace
    # An overwrite of a view is reversed on copies of the cotangent of the whole.
    first = made.start + len(signature.outputs)
    formula = signature.spare * largest + signature.reverse_workspace
    return formula + 2 * sum(trace.nbytes[first : made.stop])


def kernel_bytes(
    trace: Trace, signature: Signature, reads: Sequence[int], made: range
) -> int:
    """The bytes that a kernel that works on copies takes for itself while it runs."""
    copies = sum(trace.nbytes[slot] for slot in {*reads, *made})
    return copies + signature.workspace - signature.scratch_bytes


def sum_bytes(trace: Trace) -> int:
    """The bytes of the cotangents that are sums: of foreign slots read twice.

    Autograd holds such a sum from the last read back to the first; of those whose
    reads lie apart it holds one at a time.
    """
    change: dict[int, int] = {}
    for slot, note in trace.notes.items():
        first, last = note.first_read, trace.last_read[slot]
        nbytes = trace.nbytes[slot]
        if -1 < first < last:
            change[first] = change.get(first, 0) + nbytes
            change[last + 1] = change.get(last + 1, 0) - nbytes
    return max(accumulate(change[place] for place in sorted(change)), default=0)


def note_sums_apart(trace: Trace) -> None:
    """Note in `apart`, by its last read, whose first sum is a tensor of its own.

    Autograd adds in place to a cotangent that shares its storage with nobody. That of
    what was read as a view does: it is a view of what the formula made. So does what a
    product makes for a matrix that is not contiguous. For other operators that share
    (`add`), what they made is as large, and its cotangent is counted.
    """
    for slot, note in trace.notes.items():
        last = trace.last_read[slot]
        if -1 < note.first_read < last < len(trace.steps):
            step, whole = trace.steps[last], note.whole
            seen = zip(step.reads, step.signature.geometries, strict=True)
            if any(s == slot and geometry is not whole for s, geometry in seen):
                note.apart = last


def state_bytes(trace: Trace) -> int:
    """The bytes of the states that generators have while steps are run again.

    They are put aside then, one of each generator.
    """
    sizes = {each: state.nbytes for each, state in trace.random.values()}
    return sum(sizes.values())

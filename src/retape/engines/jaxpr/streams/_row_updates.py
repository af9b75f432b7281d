"""Operations of a block that set one row of a buffer, or leave the buffer as it is.

    r = scatter b i y                                 row i, always
    r = dynamic_update_slice b y i 0                  row i, the last one if beyond it
    s = select p b (scatter b i y)                    row i, where p is true
    s = scatter b i (select p (b at i) y)             the same
    s = scatter b (select p 99 i) y                   the same, in a buffer of 99 rows

A primitive that is not JAX's is seen through what it is made of, if its derivative is
itself: then it is linear in the buffer and the row, and its parts have the derivative
that it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jax import lax

from retape.engines.jaxpr.analysis._opaque_primitives import (
    derives_itself,
    implementation,
)
from retape.engines.jaxpr.ir._ir import Atom, Op, Var
from retape.engines.jaxpr.ir._operations import operations
from retape.engines.jaxpr.jaxprs._primitive_table import Also, is_a
from retape.engines.jaxpr.streams._definitions import Definitions

Facts = frozenset[tuple[Atom, bool]]
"""Truth values, and whether each of them holds."""


@dataclass(frozen=True, slots=True)
class RowSet:
    """`new` is `old` with one row set, if all facts hold."""

    op: Op
    old: Var
    new: Var
    index: Atom
    update: Atom
    clamps: bool
    """Whether a row beyond the last one is the last one."""
    when: Facts = frozenset()


def opened_update(op: Op) -> list[Op] | None:
    """The parts of a third-party operation that may set a row of a buffer."""
    if len(op.outs) != 1 or not op.outs[0].aval.shape:
        return None
    (out,) = op.outs
    if not any(_same_type(a.aval, out.aval) for a in op.ins if isinstance(a, Var)):
        return None
    body = implementation(op.eqn)
    if body is None or not derives_itself(op.eqn):
        return None
    made = operations(body, op.ins)
    if made is None:
        return None
    ops, (result,) = made
    return (
        [_with_out(o, result, out) for o in ops] if _is_made_by(ops, result) else None
    )


def _is_made_by(ops: Sequence[Op], atom: Atom) -> bool:
    return any(atom in op.outs for op in ops)


def _with_out(op: Op, old: Atom, new: Var) -> Op:
    return replace(op, outs=tuple(new if o is old else o for o in op.outs))


def _same_type(a: Any, b: Any) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype


def row_set(op: Op, made: Definitions) -> RowSet | None:
    """An operation as one that sets a row."""
    match op.eqn.primitive.name:
        case "scatter":
            return _scatter(op)
        case "dynamic_update_slice":
            return _slice(op, made)
        case _:
            return None


def _scatter(op: Op) -> RowSet | None:
    buffer, index, update = op.ins
    if not isinstance(buffer, Var):
        return None
    dims, shape = op.eqn.params["dimension_numbers"], buffer.aval.shape
    one_row = (
        dims.inserted_window_dims == (0,)
        and dims.scatter_dims_to_operand_dims == (0,)
        and dims.update_window_dims == tuple(range(len(shape) - 1))
        and not dims.operand_batching_dims
        and index.aval.shape == (1,)
        and update.aval.shape == shape[1:]
        and shape[0] > 0
    )
    clamps = op.eqn.params["mode"] == lax.GatherScatterMode.CLIP
    return RowSet(op, buffer, op.outs[0], index, update, clamps) if one_row else None


def _slice(op: Op, made: Definitions) -> RowSet | None:
    buffer, update, index, *rest = op.ins
    if not isinstance(buffer, Var) or update.aval.shape != (1, *buffer.aval.shape[1:]):
        return None
    if not _zeros(rest, made):
        return None
    return RowSet(op, buffer, op.outs[0], index, update, clamps=True)


def _zeros(atoms: Sequence[Atom], made: Definitions) -> bool:
    """Tell whether indices are all zero."""
    found = map(made.number, atoms)
    return all(n is not None and not n for n in found)


def is_same(op: Op) -> bool:
    """True if an operation returns what it is given (but for how firm its type is)."""
    named = op.eqn.primitive.name in ("convert_element_type", "copy")
    return named and _same_type(op.ins[0].aval, op.outs[0].aval)


def chain(
    ops: Sequence[Op], made: Definitions, buffers: frozenset[Var]
) -> Versions | None:
    """What one block does with a buffer; `None` if it uses an old version of it again.

    Args:
        ops: The block's operations.
        made: What they make.
        buffers: The names of the buffer.
    """
    versions = Versions(made, buffers)
    return versions if all(map(versions.follow, ops)) else None


class Versions:
    """The versions of a buffer in a block. Version k is the one with k rows set.

    Attributes:
        sets: The rows set, in turn: what leads from each version to the next.
        passed: The operations that the buffer went through.
        number: The version that each variable of the block is.
    """

    def __init__(self, made: Definitions, buffers: frozenset[Var]) -> None:
        self.made = made
        self.buffers = buffers
        self.sets: list[RowSet] = []
        self.passed: list[Op] = []
        self.number: dict[Var, int] = {}

    @property
    def last(self) -> frozenset[Var]:
        """The names of the last version that it got in the block."""
        return frozenset(v for v, k in self.number.items() if k == len(self.sets))

    def of(self, atom: Atom) -> int | None:
        """The version that an atom is; `None` if it is none."""
        if not isinstance(atom, Var):
            return None
        # On entry to the block every name of the buffer is version 0.
        entered = atom in self.buffers and atom not in self.made.makers
        return self.number.get(atom, 0 if entered else None)

    def follow(self, op: Op) -> bool:
        """Go on through an operation; false if it works on an old version."""
        found = row_set(op, self.made)
        if found is not None and self.of(found.old) is not None:
            return self._set_row(op, found)
        if is_same(op) and self.of(op.ins[0]) is not None:
            return self._hand_on(op)
        if op.eqn.primitive.name == "select_n" and len(op.ins) == 3:
            return self._choose(op)
        return True

    def _set_row(self, op: Op, found: RowSet) -> bool:
        if self.of(found.old) != len(self.sets):
            return False
        self.sets.append(_unless_kept(found, self.made, self.of))
        self._note(op, len(self.sets))
        return True

    def _hand_on(self, op: Op) -> bool:
        self._note(op, self.of(op.ins[0]) or 0)
        return True

    def _choose(self, op: Op) -> bool:
        """`select p no yes` of two versions: the rows between are set under `p`."""
        which, *pair = op.ins
        no, yes = map(self.of, pair)
        if no is None or yes is None or not _is_truth(which, self.made):
            return True
        old, new = min(no, yes), max(no, yes)
        if new != len(self.sets):
            return False
        facts = _fact(self.made, which, yes > no)
        for i in range(old, new):
            self.sets[i] = replace(self.sets[i], when=self.sets[i].when | facts)
        # The versions that it chose among are not what the buffer holds now.
        self.number = {v: k for v, k in self.number.items() if k <= old}
        self._note(op, new)
        return True

    def _note(self, op: Op, version: int) -> None:
        self.number[op.outs[0]] = version
        self.passed.append(op)


def _fact(made: Definitions, truth: Atom, value: bool) -> Facts:
    """That a truth value is this."""
    return frozenset({(made.root(truth), value)})


def _is_truth(atom: Atom, made: Definitions) -> bool:
    """Tell whether it is one truth value, for all elements."""
    root = made.root(atom).aval
    return root.size == 1 and root.dtype == np.bool_


def _unless_kept(found: RowSet, made: Definitions, of: Any) -> RowSet:
    """A row set to what it was already, under some condition, is not set under it."""
    update, when = found.update, found.when
    while True:
        op = made.maker(update)
        if op is None:
            break
        if is_a(op.eqn, Also.SAME_ELEMENTS) and op.ins[0].aval.size == update.aval.size:
            update = op.ins[0]
            continue
        if op.eqn.primitive.name != "select_n" or len(op.ins) != 3:
            break
        which, no, yes = op.ins
        if not _is_truth(which, made):
            break
        if _is_old(no, found, made, of):
            update, when = yes, when | _fact(made, which, True)
        elif _is_old(yes, found, made, of):
            update, when = no, when | _fact(made, which, False)
        else:
            break
    return replace(found, update=update, when=when)


def _is_old(atom: Atom, found: RowSet, made: Definitions, of: Any) -> bool:
    """Tell whether an atom is the row of the buffer that is about to be set."""
    op = made.maker(atom)
    while op is not None and is_a(op.eqn, Also.SAME_ELEMENTS):
        if op.ins[0].aval.size != atom.aval.size:
            return False
        atom = op.ins[0]
        op = made.maker(atom)
    if op is None or op.eqn.primitive.name not in ("dynamic_slice", "gather"):
        return False
    if op.ins[0] is not found.old and of(op.ins[0]) != of(found.old):
        return False
    index = _row_read(op, made)
    if index is None or (found.clamps and not _read_clamps(op)):
        return False
    return made.same_row(index, found.index)


def _read_clamps(op: Op) -> bool:
    """Tell whether a row beyond the last one is read as the last one."""
    if op.eqn.primitive.name == "dynamic_slice":
        return True
    return op.eqn.params["mode"] == lax.GatherScatterMode.CLIP


def _row_read(op: Op, made: Definitions) -> Atom | None:
    """The index, if an operation reads one row."""
    shape = op.ins[0].aval.shape
    if tuple(op.eqn.params["slice_sizes"]) != (1, *shape[1:]):
        return None
    if op.eqn.primitive.name == "dynamic_slice":
        return op.ins[1] if _zeros(op.ins[2:], made) else None
    dims = op.eqn.params["dimension_numbers"]
    whole = (
        dims.collapsed_slice_dims == (0,)
        and dims.start_index_map == (0,)
        and not dims.operand_batching_dims
        and op.ins[1].aval.shape == (1,)
    )
    return op.ins[1] if whole else None

"""Parts of arrays by slices, and whole rows and columns: read, and written.

    u[1:-1]          ->   (part u 1 -1 1)
    v[a:b] = x       ->   v' = (set-part v a b 1 x)
    M[:, j]          ->   (part M 0 far 1 j j+1 1), without the axis of one item

What is read is a copy, and counts as another name of the array: NumPy's is a view, so
neither is written as long as both are there.
"""

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from retape.engines.vlad.language._core import Const, Core, Prim
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import ADD, CONS
from retape.engines.vlad.python.library import _parts
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    UNKNOWN,
    ArrayType,
    TupleType,
    Type,
    kind_of_type,
)
from retape.engines.vlad.python.terms._arithmetic import LARGEST_INT, Operand
from retape.engines.vlad.python.terms._array_terms import length_of, opened
from retape.engines.vlad.python.terms._core_builder import tuple_of

if TYPE_CHECKING:
    from retape.engines.vlad.python.expressions._expressions import Expressions
    from retape.engines.vlad.python.read._variables import Variables

_FAR = float(LARGEST_INT)
"""A bound that is beyond the end of every array."""

_BOUNDS = TupleType((INT, INT, INT))
"""Where a slice begins and ends, and its step."""

Index = tuple[Operand, ...]
"""An int, or the three bounds of a slice."""

_READS: dict[int, Any] = {
    1: _parts.part_1,
    2: _parts.part_2,
    3: _parts.part_3,
    4: _parts.part_4,
}

_SETS: dict[int, Any] = {
    1: (_parts.set_part_1, _parts.fill_part_1),
    2: (_parts.set_part_2, _parts.fill_part_2),
    3: (_parts.set_part_3, _parts.fill_part_3),
    4: (_parts.set_part_4, _parts.fill_part_4),
}


def is_part(node: ast.Subscript, type_: ArrayType) -> bool:
    """Whether a subscript is of more than one item."""
    parts = indices_of(node)
    return len(parts) < type_.rank or any(
        isinstance(each, ast.Slice) or is_new_axis(each) for each in parts
    )


def indices_of(node: ast.Subscript) -> list[ast.expr]:
    """The indices and slices between the brackets."""
    return node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]


def is_new_axis(node: ast.expr) -> bool:
    """Whether this is the `None` of `v[:, None]`, by whichever name."""
    is_name = isinstance(node, ast.Attribute) and node.attr == "newaxis"
    return is_name or (isinstance(node, ast.Constant) and node.value is None)


class ArrayParts:
    """Terms of subscripts of more than one item."""

    def __init__(self, owner: "Expressions") -> None:
        self._owner = owner

    def read(self, node: ast.Subscript, array: Operand, env: "Variables") -> Operand:
        """A part, as an array of its own."""
        if any(is_new_axis(each) for each in indices_of(node)):
            return self._with_axis(node, array)
        return self._part(node, array, self._found(node, array, env))

    def first(self, node: ast.AST, array: Operand, at: Operand) -> Operand:
        """What is at a place of the first axis of an array of several dimensions."""
        return self._part(node, array, [(at,), *self._all(node, array[1])[1:]])

    def _all(self, node: ast.AST, type_: Type) -> list[Index]:
        assert isinstance(type_, ArrayType)
        return [self._bounds(self._owner.text.where(node), 1)] * type_.rank

    def _part(self, node: ast.AST, array: Operand, found: list[Index]) -> Operand:
        owner, type_ = self._owner, array[1]
        assert isinstance(type_, ArrayType)
        kept = [at for at, index in enumerate(found) if len(index) > 1]

        def taken(whole: Core, *bounds: Core) -> Core:
            args: list[Operand] = [(each, _BOUNDS) for each in bounds]
            made, _ = owner.written(node, _READS[type_.rank], [(whole, type_), *args])
            return self._with_axes(made, type_.rank, kept)

        made = self._with_bounds(node, array, found, taken)
        owner.fresh = False
        return made, ArrayType(len(kept), type_.item)

    def with_part(
        self, node: ast.Subscript, array: Operand, value: Operand, env: "Variables"
    ) -> Core:
        """The array of a subscript, with other values there."""
        owner, type_ = self._owner, array[1]
        assert isinstance(type_, ArrayType)
        found = self._found(node, array, env)
        kept = [at for at, index in enumerate(found) if len(index) > 1]
        sets, fills = _SETS[type_.rank]
        if not isinstance(value[1], ArrayType):
            value = owner.as_number(node, value)
            value = value[0], UNKNOWN if value[1] is UNKNOWN else FLOAT
        elif value[1].rank != len(kept):
            owner.refuse(
                node,
                f"{kind_of_type(value[1])} is assigned to a part of {len(kept)} "
                f"dimension{'s' * (len(kept) > 1)}; write a loop over the rows",
            )

        def changed(whole: Core, *bounds: Core) -> Core:
            args: list[Operand] = [(each, _BOUNDS) for each in bounds]
            if not isinstance(value[1], ArrayType):
                return owner.written(node, fills, [(whole, type_), *args, value])[0]
            values = self._in_all_axes(node, value[0], type_.rank, kept)
            last = values, ArrayType(type_.rank)
            return owner.written(node, sets, [(whole, type_), *args, last])[0]

        return self._with_bounds(node, array, found, changed)

    def _with_bounds(
        self,
        node: ast.AST,
        array: Operand,
        found: list[Index],
        body: Callable[..., Core],
    ) -> Core:
        """A term of the bounds of each axis: an index is a part of one item."""
        owner, where = self._owner, self._owner.text.where(node)
        named, one = owner.arithmetic.named, Const(where, 1.0)
        single = [at for at, index in enumerate(found) if len(index) == 1]
        bounds = [tuple_of(where, [core for core, _ in index]) for index in found]
        assert isinstance(array[1], ArrayType)
        rank = array[1].rank

        def inside(whole: Core, *lengths: Core) -> Core:
            checked = [
                owner.written(node, _parts.checked_place, [*found[at], (length, INT)])
                for at, length in zip(single, lengths, strict=True)
            ]

            def known(*places: Core) -> Core:
                for at, place in zip(single, places, strict=True):
                    end = Prim(where, ADD, (place, one))
                    bounds[at] = tuple_of(where, [place, end, one])
                return body(whole, *bounds)

            return named(where, tuple(core for core, _ in checked), known)

        def opening(whole: Core) -> Core:
            def with_lengths(shape: Core, *parts: Core) -> Core:
                return inside(whole, *(parts[at] for at in single))

            if not single:
                return body(whole, *bounds)
            return opened(owner.build, where, whole, with_lengths, rank)

        return named(where, (array[0],), opening)

    def _with_axes(self, made: Core, rank: int, kept: list[int]) -> Core:
        """A part without the axes of which it has one item."""
        if len(kept) == rank:
            return made
        where, build = made.where, self._owner.build

        def without(shape: Core, *parts: Core) -> Core:
            *lengths, data = parts
            if len(kept) == 1:
                return data
            left = tuple_of(where, [lengths[at] for at in kept])
            return Prim(where, CONS, (left, data))

        return opened(build, where, made, without, rank)

    def _in_all_axes(
        self, node: ast.AST, values: Core, rank: int, kept: list[int]
    ) -> Core:
        """Values with an axis of one item where an index stands."""
        if len(kept) == rank:
            return values
        where, build = self._owner.text.where(node), self._owner.build

        def with_axes(*parts: Core) -> Core:
            *lengths, data = parts
            lengths = lengths[-len(kept) :]
            shape: list[Core] = [Const(where, 1.0)] * rank
            for at, length in zip(kept, lengths, strict=True):
                shape[at] = length
            return Prim(where, CONS, (tuple_of(where, shape), data))

        if len(kept) > 1:
            return opened(build, where, values, with_axes, len(kept))
        named = self._owner.arithmetic.named
        return named(where, (values,), lambda v: with_axes(length_of(where, v), v))

    def _found(
        self, node: ast.Subscript, array: Operand, env: "Variables"
    ) -> list[Index]:
        """Of each axis an index, or the bounds of a slice."""
        parts, type_ = indices_of(node), array[1]
        assert isinstance(type_, ArrayType)
        if len(parts) > type_.rank:
            self._owner.refuse(
                node, f"{kind_of_type(type_)} has no more than {type_.rank} indices"
            )
        found = [self._index(each, env) for each in parts]
        return found + self._all(node, type_)[len(parts) :]

    def _index(self, node: ast.expr, env: "Variables") -> Index:
        owner = self._owner
        if not isinstance(node, ast.Slice):
            return (self.index(node, env),)
        step = 1
        if node.step is not None:
            try:
                step = ast.literal_eval(node.step)
            except ValueError:
                step = 0
            if type(step) is not int or step == 0:
                owner.refuse(node, "the step of a slice is a constant int, not zero")
        bounds = list(self._bounds(owner.text.where(node), step))
        for at, part in enumerate((node.lower, node.upper)):
            if part is not None and not is_new_axis(part):
                bounds[at] = self.index(part, env)
        return tuple(bounds)

    def _bounds(self, where: Where, step: int) -> Index:
        """Those of `[::step]`, beyond both ends."""
        ends = (0.0, _FAR) if step > 0 else (_FAR, -_FAR)
        return tuple((Const(where, each), INT) for each in (*ends, float(step)))

    def index(self, node: ast.expr, env: "Variables") -> Operand:
        """An int between brackets."""
        operand = self._owner.expr(node, env)
        if isinstance(operand[1], ArrayType):
            self._owner.refuse(
                node,
                "an array as an index is not compiled; write a loop over its items, or "
                "`np.where(condition, a, b)` for a mask",
            )
        if operand[1] is BOOL:
            self._owner.refuse(
                node,
                "an index is an int, and this is a bool, which NumPy takes for a "
                "mask; use `int(x)`",
            )
        core, type_ = self._owner.as_number(node, operand)
        if type_ not in (INT, UNKNOWN):
            self._owner.refuse(
                node, "an index is an int, and this is a float; use `int(x)`"
            )
        return core, type_

    def _with_axis(self, node: ast.Subscript, array: Operand) -> Operand:
        """`v[:, None]`, a column; `v[None, :]`, a row."""
        parts = indices_of(node)
        match [is_new_axis(each) or _is_all(each) for each in parts]:
            case [True, True] if array[1] == ArrayType(1):
                pass
            case _:
                self._owner.refuse(
                    node,
                    "`None` makes a column or a row of an array of one dimension, as "
                    "`v[:, None]` and `v[None, :]`",
                )
        if is_new_axis(parts[0]) == is_new_axis(parts[1]):
            self._owner.refuse(node, "one of two indices is `None`, the other `:`")
        return self._owner.wholes.thin(node, array, is_row=is_new_axis(parts[0]))


def _is_all(node: ast.expr) -> bool:
    return isinstance(node, ast.Slice) and not (node.lower or node.upper or node.step)

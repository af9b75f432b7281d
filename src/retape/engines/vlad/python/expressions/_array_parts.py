"""Parts of arrays by slices, and whole rows and columns: read, and written.

    u[1:-1]          ->   (part u's items, first, (step, count))
    v[a:b] = x       ->   v' = (set-part v's items, first, (step, count), x)
    M[:, j]          ->   (part M's items, j, (length of a row, count))

What is read is a copy, and counts as another name of the array: NumPy's is a view, so
neither is written as long as both are there.
"""

import ast
from collections.abc import Callable
from functools import reduce
from typing import TYPE_CHECKING

from retape.engines.vlad.language._core import Const, Core, If, Prim, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import ADD, CONS, EQUAL, MULTIPLY
from retape.engines.vlad.python.expressions._unit import Terms
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
from retape.engines.vlad.python.terms._arithmetic import LARGEST_INT, Operand, fault
from retape.engines.vlad.python.terms._array_terms import length_of, opened, product_of
from retape.engines.vlad.python.terms._core_builder import tuple_of, tuple_pattern

if TYPE_CHECKING:
    from retape.engines.vlad.python.read._variables import Variables

_FAR = float(LARGEST_INT)
"""A bound that is beyond the end of every array."""

_BOUNDS = TupleType((INT, INT, INT))
"""Where a slice begins and ends, and its step."""

Index = tuple[Operand, ...]
"""An int, or the three bounds of a slice."""

_Axis = tuple[Core, Core]
"""The step along an axis of a part, among an array's items, and how many there are."""

_ROW, _AXIS = ArrayType(1), TupleType((INT, INT))
"""The items of an array; of an axis of a part the step, and how many."""


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


class ArrayParts(Terms):
    """Terms of subscripts of more than one item."""

    def read(self, node: ast.Subscript, array: Operand, env: "Variables") -> Operand:
        """A part, as an array of its own."""
        if any(is_new_axis(each) for each in indices_of(node)):
            return self._with_axis(node, array)
        return self._part(node, array, self._found(node, array, env))

    def first(self, node: ast.AST, array: Operand, at: Operand) -> Operand:
        """What is at a place of the first axis of an array of several dimensions."""
        return self._part(node, array, [(at,), *self._all(node, array.type)[1:]])

    def _all(self, node: ast.AST, type_: Type) -> list[Index]:
        assert isinstance(type_, ArrayType)
        return [self._bounds(self._owner.text.where(node), 1)] * type_.rank

    def _part(self, node: ast.AST, array: Operand, found: list[Index]) -> Operand:
        owner, where = self._owner, self._owner.text.where(node)
        assert isinstance(array.type, ArrayType)

        def taken(shape: Core | None, items: Core, base: Core, *axes: _Axis) -> Core:
            function = _parts.part if len(axes) > 1 else _parts.part_of_one
            made = owner.written(node, function, _given(where, items, base, axes)).core
            if len(axes) == 1:
                return made
            counts = tuple_of(where, [count for _, count in axes])
            return Prim(where, CONS, (counts, made))

        made = self._along(node, array, found, taken)
        rank = sum(len(index) > 1 for index in found)
        return Operand(made, ArrayType(rank, array.type.item))

    def with_part(
        self, node: ast.Subscript, array: Operand, value: Operand, env: "Variables"
    ) -> Core:
        """The array of a subscript, with other values there."""
        owner, where = self._owner, self._owner.text.where(node)
        found = self._found(node, array, env)
        rank = sum(len(index) > 1 for index in found)
        type_ = value.type
        if not isinstance(type_, ArrayType):
            operand = owner.as_number(node, value)
            value = Operand(operand.core, UNKNOWN if operand.type is UNKNOWN else FLOAT)
        elif type_.rank != rank:
            owner.refuse(
                node,
                f"{kind_of_type(type_)} is assigned to a part of {rank} "
                f"dimension{'s' * (rank > 1)}; write a loop over the rows",
            )

        def changed(shape: Core | None, items: Core, base: Core, *axes: _Axis) -> Core:
            given = _given(where, items, base, axes)
            if isinstance(type_, ArrayType):
                made = self._set(node, given, axes, value)
            else:
                one, more = _parts.fill_part_of_one, _parts.fill_part
                function = one if len(axes) == 1 else more
                made = owner.written(node, function, [*given, value]).core
            return made if shape is None else Prim(where, CONS, (shape, made))

        return self._along(node, array, found, changed)

    def _set(
        self,
        node: ast.AST,
        given: list[Operand],
        axes: tuple[_Axis, ...],
        values: Operand,
    ) -> Core:
        """The items with those of an array in a part, which are as many."""
        owner, where = self._owner, self._owner.text.where(node)

        def placed(shape: Core | None, items: Core, *lengths: Core) -> Core:
            one, more = _parts.set_part_of_one, _parts.set_part
            function = more if shape else one
            done = owner.written(node, function, [*given, Operand(items, _ROW)]).core
            kind = "shapes" if shape else "lengths"
            wrong = fault(where, f"the {kind} of two arrays differ")
            for length, (_, count) in zip(lengths, axes, strict=True):
                same = Prim(where, EQUAL, (length, count))
                done = If(where, same, done, wrong)
            return done

        return self.opened(where, values, placed)

    def opened(self, where: Where, array: Operand, body: Callable[..., Core]) -> Core:
        """A term of an array's shape, if it has more dimensions, items and lengths."""
        assert isinstance(array.type, ArrayType)

        def within(shape: Core, *parts: Core) -> Core:
            *lengths, items = parts
            return body(shape, items, *lengths)

        if array.type.rank > 1:
            return opened(self._owner.build, where, array.core, within, array.type.rank)
        named = self._owner.arithmetic.named
        return named(where, (array.core,), lambda v: body(None, v, length_of(where, v)))

    def _along(
        self,
        node: ast.AST,
        array: Operand,
        found: list[Index],
        body: Callable[..., Core],
    ) -> Core:
        """A term of where a part begins, and of its axes; an index makes none."""
        owner, where = self._owner, self._owner.text.where(node)
        named = owner.arithmetic.named

        def inside(shape: Core | None, items: Core, *lengths: Core) -> Core:
            def reached(at: int, base: list[Core], axes: list[_Axis]) -> Core:
                if at == len(found):
                    steps = tuple(step for step, _ in axes)
                    counts = [count for _, count in axes]
                    first = reduce(lambda a, b: Prim(where, ADD, (a, b)), base)

                    def known(first: Core, *steps: Core) -> Core:
                        pairs = zip(steps, counts, strict=True)
                        return body(shape, items, first, *pairs)

                    return named(where, (first, *steps), known)
                stride = product_of(where, [Const(where, 1.0), *lengths[at + 1 :]])
                length = Operand(lengths[at], INT)

                def further(place: Core, step: Core, count: Core | None) -> Core:
                    begins, by = (
                        Prim(where, MULTIPLY, (each, stride)) for each in (place, step)
                    )
                    more = [] if count is None else [(by, count)]
                    return reached(at + 1, [*base, begins], [*axes, *more])

                if len(found[at]) == 1:
                    checked = _parts.checked_place
                    place = owner.written(node, checked, [*found[at], length]).core
                    return named(where, (place,), lambda i: further(i, i, None))
                ends = tuple_of(where, [each.core for each in found[at]])
                bounds = Operand(ends, _BOUNDS)
                spanned = owner.written(node, _parts.span, [bounds, length]).core
                names = [owner.build.fresh(n) for n in ("first", "step", "count")]
                rest = further(*(Var(where, name) for name in names))
                return owner.build.let(where, tuple_pattern(names), spanned, rest)

            return reached(0, [], [])

        return self.opened(where, array, inside)

    def _found(
        self, node: ast.Subscript, array: Operand, env: "Variables"
    ) -> list[Index]:
        """Of each axis an index, or the bounds of a slice."""
        parts, type_ = indices_of(node), array.type
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
        return tuple(Operand(Const(where, each), INT) for each in (*ends, float(step)))

    def index(self, node: ast.expr, env: "Variables") -> Operand:
        """An int between brackets."""
        operand = self._owner.expr(node, env)
        if isinstance(operand.type, ArrayType):
            self._owner.refuse(
                node,
                "an array as an index is not compiled; write a loop over its items, or "
                "`np.where(condition, a, b)` for a mask",
            )
        if operand.type is BOOL:
            self._owner.refuse(
                node,
                "an index is an int, and this is a bool, which NumPy takes for a "
                "mask; use `int(x)`",
            )
        given = self._owner.as_number(node, operand)
        if given.type not in (INT, UNKNOWN):
            self._owner.refuse(
                node, "an index is an int, and this is a float; use `int(x)`"
            )
        return Operand(given.core, given.type)

    def _with_axis(self, node: ast.Subscript, array: Operand) -> Operand:
        """`v[:, None]`, a column; `v[None, :]`, a row."""
        parts = indices_of(node)
        match [is_new_axis(each) or _is_all(each) for each in parts]:
            case [True, True] if array.type == ArrayType(1):
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


def _given(
    where: Where, items: Core, base: Core, axes: tuple[_Axis, ...]
) -> list[Operand]:
    """What a function of our library is given: of more axes than one there are four."""
    first, *more = [Operand(tuple_of(where, axis), _AXIS) for axis in axes]
    given: list[Operand] = [Operand(items, _ROW), Operand(base, INT)]
    if not more:
        return [*given, first]
    none = Operand(tuple_of(where, [Const(where, 0.0), Const(where, 1.0)]), _AXIS)
    padded = [first, *[none] * (3 - len(more)), *more]
    kinds = TupleType((_AXIS,) * 4)
    return [*given, Operand(tuple_of(where, [each.core for each in padded]), kinds)]

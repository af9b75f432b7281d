"""Lists that grow: `xs = []`, `xs.append(x)`, `xs[i]`, `np.array(xs)`.

    [a, b], each of k numbers   ->   (cons (cons 2 k) a vector with room for more)

A list that may have a second name is not changed, as an array. What is read of a list
of arrays is a copy, and counts as another name of the array in it.
"""

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from retape.engines.vlad.language._core import Const, Core, If, Pattern, Prim, PVar, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import (
    ADD,
    CONS,
    IS_ZERO,
    MAKE_VECTOR,
    MAXIMUM,
    MULTIPLY,
    SUBTRACT,
    VECTOR_REF,
    VECTOR_SET,
)
from retape.engines.vlad.python.expressions._unit import Terms
from retape.engines.vlad.python.library import _parts
from retape.engines.vlad.python.read._names import as_function
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    UNKNOWN,
    ArrayType,
    ListType,
    NoCommonType,
    TupleType,
    Type,
    has_width,
    holds_arrays,
    join,
    kind_of_type,
)
from retape.engines.vlad.python.read._variables import share
from retape.engines.vlad.python.terms._arithmetic import Operand, fault
from retape.engines.vlad.python.terms._array_terms import (
    in_range,
    length_of,
    opened,
    wrapped,
)
from retape.engines.vlad.python.terms._core_builder import (
    nested_pattern,
    tuple_of,
    tuple_pattern,
)

if TYPE_CHECKING:
    from retape.engines.vlad.python.read._variables import Variables

_ROW = ArrayType(1)


class Lists(Terms):
    """Terms of lists."""

    def literal(self, node: ast.List, env: "Variables") -> Operand:
        """`[a, b]`."""
        result = self.empty(self._owner.text.where(node))
        for each in node.elts:
            result = self.appended(each, result, self.item_of(each, env))
        return replace(result, fresh=True)

    def empty(self, where: Where) -> Operand:
        nothing = Const(where, 0.0)
        row = Prim(where, MAKE_VECTOR, (nothing, nothing))
        shape = Prim(where, CONS, (nothing, nothing))
        return Operand(Prim(where, CONS, (shape, row)), ListType(UNKNOWN))

    def item_of(self, node: ast.expr, env: "Variables") -> Operand:
        """A value that a list takes: an array in it has a second name from now on."""
        value = self._owner.expr(node, env)
        if holds_arrays(value.type) and not value.fresh:
            share(node, env)
        return value

    def repeated(self, node: ast.BinOp, value: Operand, count: Operand) -> Operand:
        """`[x] * n`."""
        owner, where = self._owner, self._owner.text.where(node)
        core = owner.as_number(node, value).core
        if count.type is not INT:
            owner.refuse(node, "`[x] * n` is compiled of a number and an int")
        number = Prim(where, MAXIMUM, (count.core, Const(where, 0.0)))

        def made(n: Core, x: Core) -> Core:
            shape = Prim(where, CONS, (n, Const(where, 1.0)))
            return Prim(where, CONS, (shape, Prim(where, MAKE_VECTOR, (n, x))))

        filled = owner.arithmetic.named(where, (number, core), made)
        return Operand(filled, ListType(value.type), fresh=True)

    def comprehension(
        self, node: ast.ListComp | ast.GeneratorExp, env: "Variables"
    ) -> Operand:
        """`[e for x in xs]`: a function that fills a list, called at once."""
        owner, function = self._owner, as_function(node)
        # It is gone when it has been called, so that it is no second name of anything.
        core, (type_,) = owner.nested({function.name: function}, dict(env))
        result = owner.calls.of_function(node, type_, core, [])
        if holds_arrays(result.type) and not result.fresh:
            for name, _ in type_.captured:
                share(ast.copy_location(ast.Name(name, ast.Load()), node), env)
        return result

    # what is in a list

    def item(
        self, node: ast.AST, xs: Operand, at: Core, natural: bool, known: bool = False
    ) -> Operand:
        """`xs[i]`; a `known` place is one where there is an item."""
        where = self._owner.text.where(node)

        def read(shape: Core, count: Core, width: Core, data: Core) -> Core:
            def found(place: Core) -> Core:
                return self._read(node, xs.type, (width, data), place)

            if known:
                return found(at)
            return self._in_range(where, at, natural, count, found)

        assert isinstance(xs.type, ListType)
        return Operand(opened(self._build, where, xs.core, read), xs.type.item)

    def with_item(
        self, node: ast.AST, xs: Operand, at: Operand, value: Operand, natural: bool
    ) -> Operand:
        """`xs[i] = x`: the list with another item there."""
        where, item = self._owner.text.where(node), self._common(node, xs, value)

        def changed(shape: Core, count: Core, width: Core, data: Core) -> Core:
            def set_at(place: Core) -> Core:
                made = self._placed(node, (count, width, data), place, value)
                return Prim(where, CONS, (shape, made))

            return self._in_range(where, at.core, natural, count, set_at)

        return Operand(opened(self._build, where, xs.core, changed), ListType(item))

    def appended(self, node: ast.AST, xs: Operand, value: Operand) -> Operand:
        """`xs.append(x)`: the list with one more item."""
        where, item = self._owner.text.where(node), self._common(node, xs, value)
        if UNKNOWN in (item, value.type):
            return Operand(xs.core, ListType(item))

        def changed(shape: Core, count: Core, width: Core, data: Core) -> Core:
            more = Prim(where, ADD, (count, Const(where, 1.0)))
            kept = count, width, data
            return self._placed(node, kept, count, value, grown_to=more)

        return Operand(opened(self._build, where, xs.core, changed), ListType(item))

    def without_last(self, node: ast.AST, xs: Operand) -> Operand:
        """The list without its last item, which there is."""
        where = self._owner.text.where(node)

        def shorter(shape: Core, count: Core, width: Core, data: Core) -> Core:
            less = Prim(where, SUBTRACT, (count, Const(where, 1.0)))
            return Prim(where, CONS, (Prim(where, CONS, (less, width)), data))

        return Operand(opened(self._build, where, xs.core, shorter), xs.type)

    # of a whole list

    def of_tuple(self, node: ast.AST, items: Operand) -> Operand:
        """The list of a tuple's items."""
        where, type_ = self._owner.text.where(node), items.type
        assert isinstance(type_, TupleType)
        names = [self._build.fresh("item") for _ in type_.items]
        result = self.empty(where)
        for name, kind in zip(names, type_.items, strict=True):
            result = self.appended(node, result, Operand(Var(where, name), kind))
        fresh = not any(holds_arrays(kind) for kind in type_.items)
        made = self._build.let(where, tuple_pattern(names), items.core, result.core)
        return Operand(made, result.type, fresh)

    def of_array(self, node: ast.AST, array: Operand) -> Operand:
        """The list of an array's items."""
        owner, where = self._owner, self._owner.text.where(node)
        assert isinstance(array.type, ArrayType)

        def made(items: Core) -> Core:
            shape = Prim(where, CONS, (length_of(where, items), Const(where, 1.0)))
            copy = owner.wholes.copy(node, Operand(items, _ROW)).core
            return Prim(where, CONS, (shape, copy))

        core = owner.arithmetic.named(where, (array.core,), made)
        return Operand(core, ListType(array.type.item), fresh=True)

    def copied(self, node: ast.AST, xs: Operand) -> Operand:
        """`xs.copy()`, `list(xs)`: another list of the same items."""
        owner, where = self._owner, self._owner.text.where(node)

        def copy(shape: Core, count: Core, width: Core, data: Core) -> Core:
            made = owner.wholes.copy(node, Operand(data, _ROW)).core
            return Prim(where, CONS, (shape, made))

        assert isinstance(xs.type, ListType)
        made = opened(self._build, where, xs.core, copy)
        return Operand(made, xs.type, fresh=not holds_arrays(xs.type.item))

    def as_array(self, node: ast.AST, xs: Operand) -> Operand:
        """`np.array(xs)`."""
        owner, where = self._owner, self._owner.text.where(node)
        assert isinstance(xs.type, ListType)
        kinds = set(_leaves(xs.type.item)) - {UNKNOWN}
        item = kinds.pop() if len(kinds) == 1 else FLOAT
        if kinds and BOOL in {item, *kinds}:
            owner.refuse(node, "an array of bools and of numbers is not compiled")
        is_flat = not isinstance(xs.type.item, TupleType | ArrayType)

        def taken(shape: Core, count: Core, width: Core, data: Core) -> Core:
            size = Prim(where, MULTIPLY, (count, width))
            given = _stretch(data, Const(where, 0.0), size)
            items = owner.written(node, _parts.part_of_one, given).core
            if is_flat:
                return items
            wrong = fault(where, "an empty list makes no array of two dimensions")
            made = Prim(where, CONS, (shape, items))
            return If(where, Prim(where, IS_ZERO, (count,)), wrong, made)

        made = opened(self._build, where, xs.core, taken)
        kind = FLOAT if isinstance(item, ArrayType) else item
        assert not isinstance(kind, TupleType)
        found = ArrayType(1 if is_flat else 2, kind)  # type: ignore[arg-type]
        return Operand(made, found, fresh=True)

    # how

    def _common(self, node: ast.AST, xs: Operand, value: Operand) -> Type:
        """The type of items if this is one of them."""
        assert isinstance(xs.type, ListType)
        try:
            item = join(xs.type.item, value.type)
        except NoCommonType as error:
            self._owner.refuse(node, f"an item of this list is {error}")
        if item is not UNKNOWN and not has_width(item):
            self._owner.refuse(
                node,
                f"a list of {kind_of_type(item)} is not compiled; a list has numbers, "
                "bools, tuples of them, or arrays of one dimension (`a.ravel()`)",
            )
        return item

    def _in_range(
        self,
        where: Where,
        at: Core,
        natural: bool,
        count: Core,
        found: Callable[[Core], Core],
    ) -> Core:
        named = self._owner.arithmetic.named

        def checked(place: Core) -> Core:
            return in_range(where, place, count, natural, found(place))

        def placed(index: Core) -> Core:
            if natural:
                return checked(index)
            return named(where, (wrapped(where, index, count),), checked)

        return named(where, (at,), placed)

    def _read(
        self, node: ast.AST, type_: Type, kept: tuple[Core, Core], place: Core
    ) -> Core:
        """The item at a place, of a width, in a row of numbers."""
        owner, where, (width, data) = self._owner, self._owner.text.where(node), kept
        assert isinstance(type_, ListType)
        first = Prim(where, MULTIPLY, (place, width))
        if type_.item == _ROW:
            given = _stretch(data, first, width)
            return owner.written(node, _parts.part_of_one, given).core
        if not isinstance(type_.item, TupleType):
            return self._number(where, data, place, type_.item)
        return self._of_numbers(where, type_.item, data, first, iter(range(10_000)))

    def _of_numbers(
        self, where: Where, type_: Type, data: Core, first: Core, at: Iterator[int]
    ) -> Core:
        """A tuple from its numbers, which stand in a row."""
        if isinstance(type_, TupleType):
            parts = [
                self._of_numbers(where, item, data, first, at) for item in type_.items
            ]
            return tuple_of(where, parts)
        place = Prim(where, ADD, (first, Const(where, float(next(at)))))
        return self._number(where, data, place, type_)

    def _number(self, where: Where, data: Core, place: Core, type_: Type) -> Core:
        number = Prim(where, VECTOR_REF, (data, place))
        if type_ is not BOOL:
            return number
        return self._owner.arithmetic.inverse(where, Prim(where, IS_ZERO, (number,)))

    def _placed(
        self,
        node: ast.AST,
        kept: tuple[Core, Core, Core],
        place: Core,
        value: Operand,
        *,
        grown_to: Core | None = None,
    ) -> Core:
        """The row of a list with an item at a place; of one that grows, the list."""
        owner, where, (count, width, data) = (
            self._owner,
            self._owner.text.where(node),
            kept,
        )

        def with_room(first: Core, wide: Core) -> Core:
            if grown_to is None:
                return data
            sizes = [Operand(first, INT), Operand(wide, INT)]
            given = [Operand(data, _ROW), *sizes]
            return owner.written(node, _parts.with_room, given).core

        def filled(wide: Core, put: Callable[[Core, Core], Core]) -> Core:
            is_one = isinstance(wide, Const) and wide.value == 1.0
            first = place if is_one else Prim(where, MULTIPLY, (place, wide))
            made = owner.arithmetic.named(
                where, (first,), lambda start: put(with_room(start, wide), start)
            )
            if grown_to is None:
                return made
            shape = Prim(where, CONS, (grown_to, wide))
            return Prim(where, CONS, (shape, made))

        def of_array(values: Core) -> Core:
            row = Operand(values, _ROW)
            sizes = [Operand(count, INT), Operand(width, INT), row]
            wide = owner.written(node, _parts.width_with, sizes).core

            def put(data: Core, start: Core, width: Core) -> Core:
                given = [*_stretch(data, start, width), row]
                return owner.written(node, _parts.set_part_of_one, given).core

            return owner.arithmetic.named(
                where, (wide,), lambda w: filled(w, lambda d, start: put(d, start, w))
            )

        if value.type == _ROW:
            return owner.arithmetic.named(where, (value.core,), of_array)
        leaves = _leaves(value.type)
        names = [self._build.fresh("item") for _ in leaves]

        def put(data: Core, start: Core) -> Core:
            for at, (name, type_) in enumerate(zip(names, leaves, strict=True)):
                item = Operand(Var(where, name), type_)
                number = owner.arithmetic.number(where, item).core
                end = (
                    Prim(where, ADD, (start, Const(where, float(at)))) if at else start
                )
                data = Prim(where, VECTOR_SET, (data, end, number))
            return data

        inside = filled(Const(where, float(len(leaves))), put)
        pattern = _pattern(value.type, iter(names))
        return self._build.let(where, pattern, value.core, inside)


def _stretch(data: Core, first: Core, count: Core) -> list[Operand]:
    """So many numbers from a place on, as the functions of parts take them."""
    axis = tuple_of(data.where, [Const(data.where, 1.0), count])
    pair = TupleType((INT, INT))
    return [Operand(data, _ROW), Operand(first, INT), Operand(axis, pair)]


def _leaves(type_: Type) -> list[Type]:
    """The types of the numbers in an item."""
    if not isinstance(type_, TupleType):
        return [type_]
    return [leaf for item in type_.items for leaf in _leaves(item)]


def _pattern(type_: Type, names: Iterator[str]) -> Pattern:
    """The parameter that gives the numbers in an item their names."""
    if not isinstance(type_, TupleType):
        return PVar(next(names))
    return nested_pattern([_pattern(item, names) for item in type_.items])

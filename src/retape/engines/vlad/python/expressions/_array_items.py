"""Items of arrays and tuples: read, and set in a next version of the array."""

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from retape.engines.vlad.language._core import Core, Prim
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import (
    ADD,
    CONS,
    IS_ZERO,
    MULTIPLY,
    VECTOR_REF,
    VECTOR_SET,
)
from retape.engines.vlad.python.expressions._array_parts import indices_of, is_part
from retape.engines.vlad.python.expressions._unit import Terms
from retape.engines.vlad.python.read._types import (
    BOOL,
    UNKNOWN,
    ArrayType,
    ListType,
    RecordType,
    TupleType,
    is_dict,
    kind_of_type,
)
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._array_terms import (
    in_range,
    length_of,
    opened,
    wrapped,
)

if TYPE_CHECKING:
    from retape.engines.vlad.python.read._variables import Variables


class ArrayItems(Terms):
    """Terms of subscripts."""

    def item(self, node: ast.Subscript, env: "Variables") -> Operand:
        """`a[i]`, `a[i, j]`, or `t[0]` of a tuple."""
        owner, where = self._owner, self._owner.text.where(node)
        operand = owner.expr(node.value, env)
        core, type_ = operand.core, operand.type
        if isinstance(type_, RecordType) and is_dict(type_):
            index = owner.records.key(node, type_)
            return Operand(owner.opened(where, type_, core, index), type_.items[index])
        if isinstance(type_, RecordType) and not issubclass(type_.made, tuple):
            self.refuse(node, f"{kind_of_type(type_)} has no items; read its fields")
        if isinstance(type_, TupleType):
            index = self._constant_index(node, len(type_.items))
            return Operand(owner.opened(where, type_, core, index), type_.items[index])
        if type_ is UNKNOWN:
            return Operand(core, UNKNOWN)
        if isinstance(type_, ListType):
            if isinstance(node.slice, ast.Slice):
                self.refuse(
                    node,
                    "a slice of a list is not compiled; take one of `np.array(...)`",
                )
            at = owner.parts.index(node.slice, env)
            return owner.lists.item(
                node, operand, at.core, self._is_natural(node.slice, env)
            )
        if not isinstance(type_, ArrayType):
            self.refuse(node, f"{kind_of_type(type_)} has no items")
        if is_part(node, type_):
            return owner.parts.read(node, operand, env)
        indices = self._indices(node, type_.rank, env)

        def read(vector: Core, at: Core) -> Core:
            return Prim(where, VECTOR_REF, (vector, at))

        item = self._at(where, core, indices, read)
        if type_.item is BOOL:
            item = owner.arithmetic.inverse(where, Prim(where, IS_ZERO, (item,)))
        return Operand(item, type_.item)

    def with_item(
        self, node: ast.Subscript, old: Operand, value: Operand, env: "Variables"
    ) -> Operand:
        """The array, list or dict of a subscript, with another value there."""
        owner, where, type_ = self._owner, self._owner.text.where(node), old.type
        if isinstance(type_, ListType):
            at = owner.parts.index(node.slice, env)
            natural = self._is_natural(node.slice, env)
            return owner.lists.with_item(node, old, at, value, natural)
        if not isinstance(type_, ArrayType):
            return owner.records.with_key(node, old, value)
        if is_part(node, type_):
            return Operand(owner.parts.with_part(node, old, value, env), type_)
        indices = self._indices(node, type_.rank, env)

        def write(vector: Core, at: Core) -> Core:
            return Prim(where, VECTOR_SET, (vector, at, value.core))

        return Operand(self._at(where, old.core, indices, write, rebuild=True), type_)

    def _indices(
        self, node: ast.Subscript, rank: int, env: "Variables"
    ) -> list[tuple[Core, bool]]:
        """The indices, and of each whether it is known not to be negative."""
        parts = indices_of(node)
        if len(parts) != rank:
            kind = f"a[{', '.join('ijkl'[:rank])}]"
            self.refuse(
                node, f"an array of {rank} dimension{'s' * (rank > 1)} is read `{kind}`"
            )
        found: list[tuple[Core, bool]] = []
        for part in parts:
            core = self._owner.parts.index(part, env).core
            found.append((core, self._is_natural(part, env)))
        return found

    def _is_natural(self, node: ast.expr, env: "Variables") -> bool:
        """Whether an index is known not to be negative."""
        least = self.least(node, env)
        return least is not None and least >= 0

    def least(self, node: ast.expr, env: "Variables") -> int | None:
        """An int that another one is known not to be below; `None` if none is."""
        match node:
            case ast.Constant(value=int(value)):
                return value
            case ast.Name(id=name):
                return env[name].least if name in env else None
            case ast.BinOp(op=ast.Sub(), right=ast.Constant(value=int(value))):
                left = self.least(node.left, env)
                return None if left is None else left - value
            case ast.BinOp(op=ast.Add() | ast.Mult() | ast.FloorDiv() as op):
                left, right = (self.least(n, env) for n in (node.left, node.right))
                if left is None or right is None:
                    return None
                if isinstance(op, ast.Add):
                    return left + right
                return 0 if min(left, right) >= 0 else None
            case ast.BinOp(op=ast.Mod()):
                right = self.least(node.right, env)
                return None if right is None or right < 0 else 0
        return None

    def _at(
        self,
        where: Where,
        array: Core,
        indices: list[tuple[Core, bool]],
        act: Callable[[Core, Core], Core],
        rebuild: bool = False,
    ) -> Core:
        """Something done at an item, whose indices may count from the end."""
        named = self._owner.arithmetic.named
        if len(indices) == 1:
            (index, natural) = indices[0]
            if natural:
                return act(array, index)
            return named(
                where,
                (array, index),
                lambda a, i: act(a, wrapped(where, i, length_of(where, a))),
            )
        cores = tuple(index for index, _ in indices)

        def flat(shape: Core, *parts: Core) -> Core:
            *lengths, data = parts

            def inner(first: Core, *more: Core) -> Core:
                place = first
                for at, length in zip(more, lengths[1:], strict=True):
                    row = Prim(where, MULTIPLY, (place, length))
                    place = Prim(where, ADD, (row, at))
                done = act(data, self._within(where, indices, lengths, more, place))
                return Prim(where, CONS, (shape, done)) if rebuild else done

            def placed(*given: Core) -> Core:
                return named(
                    where,
                    tuple(
                        at if natural else wrapped(where, at, length)
                        for at, (_, natural), length in zip(
                            given, indices, lengths, strict=True
                        )
                    ),
                    inner,
                )

            return named(where, cores, placed)

        return opened(self._build, where, array, flat, len(indices))

    def _within(
        self,
        where: Where,
        indices: list[tuple[Core, bool]],
        lengths: list[Core],
        places: tuple[Core, ...],
        found: Core,
    ) -> Core:
        """A place in a flat array, if all indices but the first one are in range.

        That one is as the place itself is.
        """
        facts = list(zip(indices[1:], lengths[1:], places, strict=True))
        for (_, natural), length, place in reversed(facts):
            found = in_range(where, place, length, natural, found)
        return found

    def _constant_index(self, node: ast.Subscript, length: int) -> int:
        index: Any = None
        try:
            index = ast.literal_eval(node.slice)
        except ValueError:
            pass
        if not isinstance(index, int) or isinstance(index, bool):
            self.refuse(
                node,
                "an item of a tuple is read by a constant, as in `t[0]`; unpack it",
            )
        if not -length <= index < length:
            self.refuse(node, f"a tuple of {length} has no item {index}")
        return index % length

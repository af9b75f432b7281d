"""Named tuples, dataclasses and dicts of fixed keys: made, read, and made anew."""

import ast
from collections.abc import Callable
from dataclasses import replace
from inspect import Parameter, getattr_static
from types import FunctionType as PythonFunction
from typing import TYPE_CHECKING, Any

from retape.engines.vlad.language._core import Core, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.python.expressions._unit import Terms
from retape.engines.vlad.python.read._types import (
    FunctionType,
    RecordType,
    TupleType,
    holds_arrays,
    is_dict,
    kind_of_type,
    parameters_of,
)
from retape.engines.vlad.python.read._variables import share
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._core_builder import tuple_of, tuple_pattern
from retape.engines.vlad.python.terms._statics import static_value

if TYPE_CHECKING:
    from retape.engines.vlad.python.read._variables import Variables


class Records(Terms):
    """Terms of values whose parts have names."""

    def made(
        self,
        node: ast.AST,
        made: type,
        args: list[Operand],
        keywords: dict[str, Operand],
    ) -> Operand:
        """`Point(x, y=1.0)`: the arrays in it have another name."""
        owner, where = self._owner, self._owner.text.where(node)
        parameters = parameters_of(made)
        by_place = [n for n, p in parameters.items() if p.kind is not p.KEYWORD_ONLY]
        given = dict(zip(by_place, args, strict=False))
        unknown = {*keywords} - ({*parameters} - {*given})
        if len(args) > len(by_place) or unknown:
            owner.refuse(node, f"`{made.__name__}` takes {', '.join(parameters)}")
        given |= keywords
        for name, parameter in parameters.items():
            if name not in given:
                given[name] = self._default(node, made, parameter)
        items = [given[name] for name in parameters]
        kinds = tuple(each.type for each in items)
        core = tuple_of(where, [each.core for each in items])
        return Operand(core, RecordType(kinds, tuple(parameters), made))

    def _default(self, node: ast.AST, made: type, parameter: Parameter) -> Operand:
        owner, name = self._owner, parameter.name
        if parameter.default is parameter.empty:
            owner.refuse(node, f"`{made.__name__}` misses its `{name}`")
        found = static_value(owner.text.where(node), parameter.default)
        if found is None:
            owner.refuse(node, f"the default of `{name}` is not compiled; pass it")
        return found

    def dict_(self, node: ast.Dict, env: "Variables") -> Operand:
        """`{"x": a, "y": b}`."""
        owner, names = self._owner, list[str]()
        for key in node.keys:
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                owner.refuse(
                    node,
                    'a dict is compiled if its keys are written out as texts (`{"x": '
                    "1.0}`); use an array or a list for others",
                )
            names.append(key.value)
        if len({*names}) < len(names) or not names:
            owner.refuse(node, "a dict has some keys, and each of them once")
        parts: list[Operand] = []
        fresh = True
        for value in node.values:
            parts.append(owner.expr(value, env))
            if holds_arrays(parts[-1].type):
                fresh = False
                if not parts[-1].fresh:
                    share(value, env)
        kinds = RecordType(tuple(each.type for each in parts), tuple(names), dict)
        core = tuple_of(owner.text.where(node), [each.core for each in parts])
        return Operand(core, kinds, fresh)

    def key(self, node: ast.Subscript, type_: RecordType, *, new: bool = False) -> int:
        """Which item of a dict a subscript is; of a new key, behind the last."""
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(key, str):
            self._owner.refuse(
                node, 'an item of a dict is read by a key as it is, as in `d["x"]`'
            )
        if key in type_.names:
            return type_.names.index(key)
        if new:
            return len(type_.names)
        return self._owner.refuse(node, f"this dict has no key `{key}` here")

    def with_key(self, node: ast.Subscript, old: Operand, value: Operand) -> Operand:
        """`d["x"] = a`: the dict with another value there."""
        type_ = old.type
        assert isinstance(type_, RecordType) and isinstance(node.slice, ast.Constant)
        name = str(node.slice.value)
        self.key(node, type_, new=True)
        return self.replaced(node, old, {name: value})

    def replaced(
        self, node: ast.AST, old: Operand, given: dict[str, Operand]
    ) -> Operand:
        """The record with other parts."""
        owner, where = self._owner, self._owner.text.where(node)
        core, type_ = old.core, old.type
        assert isinstance(type_, RecordType)
        unknown = {*given} - {*type_.names}
        if unknown and not is_dict(type_):
            owner.refuse(node, f"{kind_of_type(type_)} has no `{min(unknown)}`")
        names = (*type_.names, *(name for name in given if name not in type_.names))
        held = [self._build.fresh("part") for _ in type_.names]
        found: dict[str, Operand] = {
            name: Operand(Var(where, part), kind)
            for name, part, kind in zip(type_.names, held, type_.items, strict=True)
        }
        found |= given
        kinds = tuple(found[name].type for name in names)
        made = tuple_of(where, [found[name].core for name in names])
        core = self._build.let(where, tuple_pattern(held), core, made)
        return Operand(core, replace(type_, items=kinds, names=names))

    def attribute(self, node: ast.Attribute, old: Operand) -> Operand:
        """`p.x`, also where it is a property."""
        owner, where = self._owner, self._owner.text.where(node)
        core, type_ = old.core, old.type
        assert isinstance(type_, RecordType)
        if node.attr in type_.names and not is_dict(type_):
            at = type_.names.index(node.attr)
            return Operand(owner.opened(where, type_, core, at), type_.items[at])
        found = self._of_class(type_, node.attr)
        if not isinstance(found, property) or found.fget is None:
            owner.refuse(
                node,
                f"{kind_of_type(type_)} has no `{node.attr}` that is compiled; it has "
                f"{', '.join(type_.names)}",
            )
        return self._called(where, node, found.fget, [old], {})

    def method(
        self,
        node: ast.Call,
        name: str,
        old: Operand,
        args: list[Operand],
        keywords: dict[str, Operand],
    ) -> Operand | None:
        """`p.norm()`, `p._replace(x=1.0)`; `None` if it has no such method."""
        type_ = old.type
        assert isinstance(type_, RecordType)
        if name == "_replace" and issubclass(type_.made, tuple) and not args:
            return self.replaced(node, old, keywords)
        if name == "copy" and is_dict(type_) and not args and not keywords:
            fresh = not any(holds_arrays(item) for item in type_.items)
            return replace(old, fresh=fresh)
        found = self._of_class(type_, name)
        if not isinstance(found, PythonFunction):
            return None
        where = self._owner.text.where(node)
        return self._called(where, node, found, [old, *args], keywords)

    def _of_class(self, type_: RecordType, name: str) -> Any:
        """What a class has under a name, on which the program then depends."""
        found = getattr_static(type_.made, name, None)
        if isinstance(found, PythonFunction | property):
            self._owner.unit.attribute(type_.made, name)
        return found

    def _called(
        self,
        where: Where,
        node: ast.AST,
        function: Callable[..., Any],
        args: list[Operand],
        keywords: dict[str, Operand],
    ) -> Operand:
        nothing: Core = tuple_of(where, [])
        called = self._owner.calls.of_function
        return called(node, FunctionType(function), nothing, args, keywords)


def is_record(type_: Any) -> bool:
    """Whether values of a type have parts with names."""
    return isinstance(type_, TupleType) and isinstance(type_, RecordType)

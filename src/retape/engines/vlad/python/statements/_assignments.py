"""Assignments: every one a `let` of a new name.

    x = a; rest      ->   (let ((x' a)) rest)
    a[i] = v; rest   ->   (let ((a' (vector-set a i v))) rest)

Setting an item makes the next version of an array. An array that may have a second
name, under which Python would see the change, is refused.
"""

import ast
from typing import TYPE_CHECKING, NoReturn

from retape.engines.vlad.language._core import Core, Pattern, PVar, Var
from retape.engines.vlad.python.expressions._variables import Variable, Variables, share
from retape.engines.vlad.python.read._types import (
    UNKNOWN,
    ArrayType,
    TupleType,
    Type,
    holds_arrays,
    kind_of_type,
)
from retape.engines.vlad.python.statements._joins import After, Emit
from retape.engines.vlad.python.terms._core_builder import nested_pattern

if TYPE_CHECKING:
    from retape.engines.vlad.python.statements._body import Body


class Assignments:
    """Terms of assignments."""

    def __init__(self, owner: "Body") -> None:
        self._owner = owner

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        self._owner.refuse(node, message)

    def assign(self, node: ast.Assign, env: Variables, go: After) -> Emit:
        value, type_ = self._owner.expr(node.value, env)
        fresh = self._owner.fresh
        if len(node.targets) > 1 and holds_arrays(type_):
            self.refuse(node, "one array with several names; write `b = a.copy()`")
        if holds_arrays(type_) and not fresh:
            share(node.value, env)
        return self.bind(list(node.targets), node, (value, type_), fresh, env, go)

    def bind(
        self,
        targets: list[ast.expr],
        node: ast.AST,
        operand: tuple[Core, Type],
        fresh: bool,
        env: Variables,
        go: After,
    ) -> Emit:
        """Bind targets to a value, one after the other."""
        target, *more = targets
        value, type_ = operand
        where = self._owner.text.where(node)
        if isinstance(target, ast.Subscript):
            return self._set_item(target, operand, env, go)
        alone = not more and not fresh
        if alone and isinstance(target, ast.Name) and isinstance(value, Var):
            env[target.id] = Variable(value.name, type_)
            return go(env)
        pattern, env = self._pattern(target, type_, fresh, env)
        if more:
            assert isinstance(pattern, PVar)
            inner = self.bind(
                more, node, (Var(where, pattern.name), type_), False, env, go
            )
        else:
            inner = go(env)
        return lambda: self._owner.build.let(where, pattern, value, inner())

    def _pattern(
        self, target: ast.expr, type_: Type, fresh: bool, env: Variables
    ) -> tuple[Pattern, Variables]:
        """A target as a parameter, with the variables that it binds."""
        if isinstance(target, ast.Name):
            name = self._owner.build.fresh(target.id)
            owned = fresh and isinstance(type_, ArrayType)
            return PVar(name), {**env, target.id: Variable(name, type_, owned)}
        if isinstance(target, ast.Tuple | ast.List):
            for each in target.elts:
                if isinstance(each, ast.Starred):
                    self.refuse(each, "`*` in an assignment is not compiled; name each")
            if type_ is UNKNOWN:
                type_ = TupleType((UNKNOWN,) * len(target.elts))
            if not isinstance(type_, TupleType) or len(type_.items) != len(target.elts):
                self.refuse(
                    target,
                    f"{kind_of_type(type_)} does not unpack into "
                    f"{len(target.elts)} names",
                )
            parts: list[Pattern] = []
            for item, kind in zip(target.elts, type_.items, strict=True):
                part, env = self._pattern(item, kind, False, env)
                parts.append(part)
            return nested_pattern(parts), env
        return self.refuse(
            target,
            "a target is a variable, a tuple of them, or an item of an array; the "
            "attributes of objects are not compiled",
        )

    def _set_item(
        self,
        target: ast.Subscript,
        operand: tuple[Core, Type],
        env: Variables,
        go: After,
    ) -> Emit:
        """`a[i] = x`: the next version of an array that has no other name."""
        where = self._owner.text.where(target)
        if not isinstance(target.value, ast.Name) or target.value.id not in env:
            self.refuse(target, "an item is assigned to an array that is a variable")
        name = target.value.id
        variable = env[name]
        if not isinstance(variable.type, ArrayType):
            if variable.type is UNKNOWN:
                return go(env)
            self.refuse(
                target, f"{kind_of_type(variable.type)} has no items to be assigned"
            )
        if not variable.owned:
            self.refuse(
                target,
                f"the array `{name}` may have another name, as the caller's, which "
                f"would see the change; write `{name} = {name}.copy()` before it",
            )
        value, _ = self._owner.as_number(target, operand)
        fresh = self._owner.build.fresh(name)
        held = self._owner.build.fresh("value")
        changed = self._owner.items.with_item(
            target, Var(where, variable.name), Var(where, held), env
        )
        inner = go({**env, name: Variable(fresh, variable.type, True)})
        return lambda: self._owner.build.let_var(
            where,
            held,
            value,
            self._owner.build.let_var(where, fresh, changed, inner()),
        )

    def augmented(self, node: ast.AugAssign, env: Variables, go: After) -> Emit:
        target = node.target
        read: ast.expr
        if isinstance(target, ast.Name):
            read = ast.copy_location(ast.Name(target.id, ast.Load()), target)
        elif isinstance(target, ast.Subscript):
            read = ast.copy_location(
                ast.Subscript(target.value, target.slice, ast.Load()), target
            )
        else:
            return self.refuse(target, "attributes of objects are not compiled")
        left = self._owner.expr(read, env)
        if isinstance(left[1], ArrayType):
            assert isinstance(target, ast.Name)
            if not env[target.id].owned:
                self.refuse(
                    node,
                    f"`{target.id}` changes in place an array that may have another "
                    f"name; write `{target.id} = {target.id} ...` without `=` in the "
                    "operator",
                )
        operand = self._owner.apply_binary(
            node, node.op, left, self._owner.expr(node.value, env)
        )
        return self.bind([target], node, operand, self._owner.fresh, env, go)

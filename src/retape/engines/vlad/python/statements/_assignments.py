"""Assignments: every one a `let` of a new name.

    x = a; rest      ->   (let ((x' a)) rest)
    a[i] = v; rest   ->   (let ((a' (vector-set a i v))) rest)

Setting an item makes the next version of an array. An array that may have a second
name, under which Python would see the change, is refused.
"""

import ast
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, NoReturn

from retape.engines.vlad.language._core import Const, Pattern, PVar, Var
from retape.engines.vlad.python.expressions._array_parts import is_part
from retape.engines.vlad.python.read._types import (
    UNKNOWN,
    ArrayType,
    ListType,
    TupleType,
    Type,
    holds_arrays,
    is_changeable,
    kind_of_type,
)
from retape.engines.vlad.python.read._variables import (
    Variable,
    Variables,
    parting,
    share,
)
from retape.engines.vlad.python.statements._joins import After, Emit
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._core_builder import nested_pattern

if TYPE_CHECKING:
    from retape.engines.vlad.python.statements._body import Body


_Then = Callable[[Variables, Operand], Emit]
"""What follows a change, given the variables and the value that was put in."""


class Assignments:
    """Terms of assignments."""

    def __init__(self, owner: "Body") -> None:
        self._owner = owner

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        self._owner.refuse(node, message)

    def assign(self, node: ast.Assign, env: Variables, go: After) -> Emit:
        if isinstance(node.value, ast.Call) and is_list_call(node.value, env):
            return self.of_list(node, node.value, node.targets, env, go)
        leaving = parting(node.value, env, _bound_by(node.targets))
        operand = self._owner.expr(node.value, env)
        fresh = are_fresh(operand, node.value, leaving)
        if len(node.targets) > 1 and holds_arrays(operand.type):
            self.refuse(node, "one array with several names; write `b = a.copy()`")
        copied = all(isinstance(each, ast.Subscript) for each in node.targets)
        if holds_arrays(operand.type) and not all(fresh) and not copied:
            share(node.value, env)
        if len(node.targets) == 1:
            return self.bind(node.targets[0], node, operand, fresh, env, go)
        shown = Variable(self._owner.build.fresh("value"), operand.type)
        inner = self._in_turn(
            [(target, shown, False) for target in node.targets], node, env, go
        )
        where = self._owner.text.where(node)
        return lambda: self._owner.build.let_var(
            where, shown.name, operand.core, inner()
        )

    def bind(
        self,
        target: ast.expr,
        node: ast.AST,
        operand: Operand,
        fresh: tuple[bool, ...],
        env: Variables,
        go: After,
    ) -> Emit:
        """Bind a target to a value.

        `fresh` tells whether its arrays are new, of a tuple item by item.
        """
        value, type_ = operand.core, operand.type
        where = self._owner.text.where(node)
        if isinstance(target, ast.Subscript):
            return self._set_item(target, operand, env, go)
        if isinstance(target, ast.Name) and isinstance(value, Var) and not all(fresh):
            env[target.id] = Variable(value.name, type_)
            return go(env)
        if isinstance(target, ast.Tuple | ast.List) and _sets_items(target):
            names = [self._owner.build.fresh("part") for _ in target.elts]
            kinds = self._kinds(target, type_)
            pattern: Pattern = nested_pattern([PVar(name) for name in names])
            parts = [Variable(n, kind) for n, kind in zip(names, kinds, strict=True)]
            news = _for_each(fresh, len(names))
            each = list(zip(target.elts, parts, news, strict=True))
            inner = self._in_turn(each, node, env, go)
        else:
            pattern, env = self._pattern(target, type_, fresh, env)
            inner = go(env)
        return lambda: self._owner.build.let(where, pattern, value, inner())

    def _in_turn(
        self,
        parts: list[tuple[ast.expr, Variable, bool]],
        node: ast.AST,
        env: Variables,
        go: After,
    ) -> Emit:
        """Bind targets from left to right, as Python does: `a[i], i = i, 0`."""
        if not parts:
            return go(env)
        (target, part, new), *more = parts
        operand = Operand(Var(self._owner.text.where(node), part.name), part.type)

        def then(inner: Variables) -> Emit:
            return self._in_turn(more, node, inner, go)

        return self.bind(target, node, operand, (new,), env, then)

    def _pattern(
        self, target: ast.expr, type_: Type, fresh: tuple[bool, ...], env: Variables
    ) -> tuple[Pattern, Variables]:
        """A target as a parameter, with the variables that it binds."""
        if isinstance(target, ast.Name):
            name = self._owner.build.fresh(target.id)
            owned = all(fresh) and is_changeable(type_)
            return PVar(name), {**env, target.id: Variable(name, type_, owned)}
        if isinstance(target, ast.Tuple | ast.List):
            kinds = self._kinds(target, type_)
            parts: list[Pattern] = []
            news = _for_each(fresh, len(kinds))
            items = zip(target.elts, kinds, news, strict=True)
            for item, kind, new in items:
                part, env = self._pattern(item, kind, (new,), env)
                parts.append(part)
            return nested_pattern(parts), env
        return self._refuse_target(target)

    def _refuse_target(self, target: ast.expr) -> NoReturn:
        if isinstance(target, ast.Attribute):
            name, field = ast.unparse(target.value), target.attr
            self.refuse(
                target,
                f"the field of an object is not changed; write `{name} = "
                f"dataclasses.replace({name}, {field}=...)`, which is another object",
            )
        self.refuse(
            target, "a target is a variable, a tuple of them, or an item of an array"
        )

    def _kinds(self, target: ast.Tuple | ast.List, type_: Type) -> tuple[Type, ...]:
        """The types of what a tuple of targets is bound to."""
        for each in target.elts:
            if isinstance(each, ast.Starred):
                self.refuse(each, "`*` in an assignment is not compiled; name each")
        if type_ is UNKNOWN:
            return (UNKNOWN,) * len(target.elts)
        if isinstance(type_, TupleType) and len(type_.items) == len(target.elts):
            return type_.items
        return self.refuse(
            target,
            f"{kind_of_type(type_)} does not unpack into {len(target.elts)} names",
        )

    def _set_item(
        self, target: ast.Subscript, operand: Operand, env: Variables, go: After
    ) -> Emit:
        """`a[i] = x`, of an array, a list or a dict."""
        owner = self._owner
        if not isinstance(target.value, ast.Name) or target.value.id not in env:
            self.refuse(target, "an item is assigned to an array that is a variable")
        name = target.value.id
        type_ = env[name].type
        if type_ is UNKNOWN:
            return go(env)
        if not is_changeable(type_):
            self.refuse(target, f"{kind_of_type(type_)} has no items to be assigned")
        owner.refuse_ints(target, type_)
        is_array = isinstance(type_, ArrayType)
        if isinstance(type_, ArrayType) and is_part(target, type_):
            owner.refuse_ints(target, operand.type)
        elif is_array:
            operand = owner.as_number(target, operand)

        def make(old: Operand, value: Operand) -> Operand:
            return owner.items.with_item(target, old, value, env)

        owned = is_array or not holds_arrays(operand.type)
        then: _Then = lambda inner, _: go(inner)  # noqa: E731
        return self._changed(target, name, operand, make, env, then, owned=owned)

    def of_list(
        self,
        node: ast.stmt,
        call: ast.Call,
        targets: list[ast.expr],
        env: Variables,
        go: After,
    ) -> Emit:
        """`xs.append(x)`, and `x = xs.pop()`."""
        owner, where = self._owner, self._owner.text.where(node)
        assert isinstance(call.func, ast.Attribute)
        assert isinstance(call.func.value, ast.Name)
        name, lists = call.func.value.id, owner.lists
        self._check_owned(call, name, env[name])
        is_pop = call.func.attr == "pop"
        if len(call.args) != 1 - is_pop or call.keywords or len(targets) > is_pop:
            self.refuse(call, "write `xs.append(x)`, and `x = xs.pop()`")

        def make(old: Operand, value: Operand) -> Operand:
            if is_pop:
                return lists.without_last(call, old)
            return lists.appended(call, old, value)

        def then(inner: Variables, value: Operand) -> Emit:
            if not targets:
                return go(inner)
            return self.bind(targets[0], node, value, (False,), inner, go)

        if is_pop:
            old = Operand(Var(where, env[name].name), env[name].type)
            value = lists.item(call, old, Const(where, -1.0), natural=False)
        else:
            value = lists.item_of(call.args[0], env)
        return self._changed(call, name, value, make, env, then, owned=True)

    def _changed(
        self,
        node: ast.AST,
        name: str,
        value: Operand,
        make: Callable[[Operand, Operand], Operand],
        env: Variables,
        then: "_Then",
        *,
        owned: bool,
    ) -> Emit:
        """The next version of a variable's array, list or dict, made of a value."""
        build, where, variable = (
            self._owner.build,
            self._owner.text.where(node),
            env[name],
        )
        self._check_owned(node, name, variable)
        held, fresh = build.fresh("value"), build.fresh(name)
        given = Operand(Var(where, held), value.type)
        made = make(Operand(Var(where, variable.name), variable.type), given)
        inner = then({**env, name: Variable(fresh, made.type, owned)}, given)
        let = build.let_var
        return lambda: let(
            where, held, value.core, let(where, fresh, made.core, inner())
        )

    def _check_owned(self, target: ast.AST, name: str, variable: Variable) -> None:
        if variable.owned:
            return
        kind = kind_of_type(variable.type).split()[1].strip("`")
        self.refuse(
            target,
            f"the {kind} `{name}` may have another name, as the caller's, which "
            f"would see the change; write `{name} = {name}.copy()` before it",
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
            return self._refuse_target(target)
        left = self._owner.expr(read, env)
        self._owner.refuse_ints(node, left.type)
        if isinstance(left.type, ArrayType) and isinstance(target, ast.Name):
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
        ranks = [getattr(each.type, "rank", 0) for each in (left, operand)]
        if ranks[0] and ranks[0] != ranks[1]:
            self.refuse(node, "an array cannot be given another shape by this operator")
        return self.bind(target, node, operand, (operand.fresh,), env, go)


def are_fresh(
    operand: Operand, node: ast.expr, leaving: Container[str]
) -> tuple[bool, ...]:
    """Whether the arrays of an expression are new; of a tuple, item by item.

    Those of variables that are leaving their names are, too.
    """
    if not isinstance(node, ast.Tuple) or not operand.fresh_items:
        return (operand.fresh,)
    return tuple(
        new or (isinstance(item, ast.Name) and item.id in leaving)
        for item, new in zip(node.elts, operand.fresh_items, strict=True)
    )


def is_list_call(node: ast.Call, env: Variables) -> bool:
    """Whether it changes a list that is a variable."""
    match node.func:
        case ast.Attribute(value=ast.Name(id=name), attr="append" | "pop"):
            return name in env and isinstance(env[name].type, ListType)
    return False


def _bound_by(targets: list[ast.expr]) -> set[str]:
    """The variables that targets bind."""
    found = (each for target in targets for each in ast.walk(target))
    return {
        each.id
        for each in found
        if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)
    }


def _sets_items(target: ast.expr) -> bool:
    """Whether a tuple of targets has items of arrays among them."""
    elements = target.elts if isinstance(target, ast.Tuple | ast.List) else [target]
    return any(
        isinstance(each, ast.Subscript) or (each is not target and _sets_items(each))
        for each in elements
    )


def _for_each(fresh: tuple[bool, ...], count: int) -> tuple[bool, ...]:
    """What is known of a tuple's items; what is known of it all, of each of them."""
    return fresh if len(fresh) > 1 else fresh * count

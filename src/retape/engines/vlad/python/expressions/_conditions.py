"""Conditions: comparisons, `and` and `or`, and the choice between two values."""

import ast
from dataclasses import replace
from typing import Any

from retape.engines.vlad.language._core import Const, Core, If, Prim
from retape.engines.vlad.operators._table import IS_ZERO, LESS
from retape.engines.vlad.python.expressions._unit import Terms
from retape.engines.vlad.python.library import _numbers
from retape.engines.vlad.python.read._types import (
    BOOL,
    NONE,
    NUMBERS,
    UNKNOWN,
    ArrayType,
    ListType,
    NoCommonType,
    OneOf,
    holds_arrays,
    join,
    kind_of_type,
)
from retape.engines.vlad.python.read._variables import Variables, share
from retape.engines.vlad.python.terms._arithmetic import Operand

_MASKS: dict[type[ast.cmpop], Any] = {
    ast.Lt: _numbers.less,
    ast.Gt: _numbers.less,
    ast.LtE: _numbers.less_or_equal,
    ast.GtE: _numbers.less_or_equal,
    ast.Eq: _numbers.equal,
    ast.NotEq: _numbers.different,
}


def _with_none(node: ast.Compare) -> bool:
    """Whether this is `x is None`, or `x is not None`: a type says which."""
    (op, *more), right = node.ops, node.comparators[0]
    is_none = isinstance(right, ast.Constant) and right.value is None
    return is_none and isinstance(op, ast.Is | ast.IsNot) and not more


def decided(test: Core) -> bool | None:
    """What a condition is whatever runs; `None` for one that only running tells."""
    value = test.value if isinstance(test, Const) else None
    return value if isinstance(value, bool) else None


class Conditions(Terms):
    """Terms of conditions."""

    def condition(self, node: ast.expr, env: "Variables") -> Core:
        """An expression as a condition: a number is true unless it is zero."""
        operand = self._owner.expr(node, env)
        core, type_ = operand.core, operand.type
        where = self._owner.text.where(node)
        if type_ in NUMBERS:
            return self._owner.arithmetic.inverse(where, Prim(where, IS_ZERO, (core,)))
        if isinstance(type_, ListType):
            length = self._owner.arrays.length(node, operand).core
            return Prim(where, LESS, (Const(where, 0.0), length))
        if type_ not in (BOOL, UNKNOWN):
            self.refuse(
                node, f"a condition is a bool or a number, not {kind_of_type(type_)}"
            )
        return core

    def compare(self, node: ast.Compare, env: "Variables") -> Operand:
        """`a < b < c`: each operand once, up to the first that fails."""
        first = self._owner.expr(node.left, env)
        is_known = first.type is not UNKNOWN and not isinstance(first.type, OneOf)
        if is_known and isinstance(node.left, ast.Name) and _with_none(node):
            answer = (first.type is NONE) == isinstance(node.ops[0], ast.Is)
            return Operand(Const(self._owner.text.where(node), answer), BOOL)
        if len(node.ops) == 1:
            second = self._owner.expr(node.comparators[0], env)
            if isinstance(first.type, ArrayType) or isinstance(second.type, ArrayType):
                return self._mask(node, first, second)
        left = self._owner.as_number(node.left, first).core
        return Operand(self._chain(node, left, node.ops, node.comparators, env), BOOL)

    def _mask(self, node: ast.Compare, left: Operand, right: Operand) -> Operand:
        """A comparison of arrays, item by item."""
        owner, op = self._owner, type(node.ops[0])
        for each in (left, right):
            owner.refuse_ints(node, each.type)
        if op in (ast.Gt, ast.GtE):
            left, right = right, left
        if op not in _MASKS:
            self.refuse(node, "only `<`, `<=`, `>`, `>=`, `==` and `!=` are compiled")
        return owner.wholes.by_item(node, _MASKS[op], [left, right], BOOL)

    def _chain(
        self,
        node: ast.Compare,
        left: Core,
        ops: list[ast.cmpop],
        rest: list[ast.expr],
        env: "Variables",
    ) -> Core:
        where = self._owner.text.where(node)
        right = self._owner.number(rest[0], env).core
        if len(ops) == 1:
            return self._test(node, ops[0], left, right)

        def both(a: Core, b: Core) -> Core:
            first = self._test(node, ops[0], a, b)
            more = self._chain(node, b, ops[1:], rest[1:], env)
            return If(where, first, more, Const(where, False))

        return self._owner.arithmetic.named(where, (left, right), both)

    def _test(self, node: ast.Compare, op: ast.cmpop, a: Core, b: Core) -> Core:
        result = self._owner.arithmetic.compare(self._owner.text.where(node), op, a, b)
        if result is None:
            self.refuse(node, "only `<`, `<=`, `>`, `>=`, `==` and `!=` are compiled")
        return result

    def logical(self, node: ast.BoolOp, env: "Variables") -> Core:
        """`a and b`: what stands after one that decides, whatever runs, is not read."""
        where, tests = self._owner.text.where(node), list[Core]()
        for each in node.values:
            tests.append(self._bool(each, env))
            if decided(tests[-1]) is isinstance(node.op, ast.Or):
                break
        *tests, result = tests
        for test in reversed([each for each in tests if decided(each) is None]):
            if isinstance(node.op, ast.And):
                result = If(where, test, result, Const(where, False))
            else:
                result = If(where, test, Const(where, True), result)
        return result

    def _bool(self, node: ast.expr, env: "Variables") -> Core:
        operand = self._owner.expr(node, env)
        if operand.type not in (BOOL, UNKNOWN):
            self.refuse(node, "`and` and `or` take bools; compare this with 0")
        return operand.core

    def choice(self, node: ast.IfExp, env: "Variables") -> Operand:
        test = self.condition(node.test, env)
        where = self._owner.text.where(node)
        if (is_true := decided(test)) is not None:
            chosen = node.body if is_true else node.orelse
            share(chosen, env)
            return replace(self._owner.expr(chosen, env), fresh=False)
        a, b = (self._owner.expr(each, env) for each in (node.body, node.orelse))
        for each, operand in ((node.body, a), (node.orelse, b)):
            if holds_arrays(operand.type):
                share(each, env)
        try:
            return Operand(If(where, test, a.core, b.core), join(a.type, b.type))
        except NoCommonType as error:
            return self.refuse(node, f"the two values are {error}; make them alike")

"""Python's expressions in the core language, each with its type."""

import ast
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, NoReturn

from retape.engines.vlad.language._core import Const, Core, If, Prim, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.python.read._names import parameters, reads
from retape.engines.vlad.python.read._source import MISSING, Parsed
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    NONE,
    NUMBERS,
    UNKNOWN,
    ArrayType,
    FunctionType,
    NoCommonType,
    TupleType,
    Type,
    holds_arrays,
    join,
    kind_of_type,
)
from retape.engines.vlad.python.translate import _prelude as prelude
from retape.engines.vlad.python.translate._arithmetic import (
    Arithmetic,
    Operand,
    literal,
)
from retape.engines.vlad.python.translate._arrays import Arrays
from retape.engines.vlad.python.translate._calls import CallTranslator
from retape.engines.vlad.python.translate._core_builder import tuple_of, tuple_pattern
from retape.engines.vlad.python.translate._statics import static_value
from retape.engines.vlad.python.translate._unit import Nested, Unit


@dataclass(frozen=True, slots=True)
class Slot:
    """A variable at one place of a function.

    Attributes:
        name: Its name in the core language.
        owned: Whether it holds an array that no other variable can hold.
        natural: Whether it is known not to be negative.
    """

    name: str
    type: Type
    owned: bool = False
    natural: bool = False


Variables = dict[str, Slot]

_ELEMENTWISE: dict[type[ast.operator], Any] = {
    ast.Add: prelude.item_add,
    ast.Sub: prelude.item_subtract,
    ast.Mult: prelude.item_multiply,
    ast.Div: prelude.item_divide,
    ast.Pow: prelude.item_power,
}


class Expressions:
    """The expressions of one function.

    Attributes:
        fresh: Whether the array that was made last is nobody else's.
    """

    def __init__(self, unit: Unit, parsed: Parsed) -> None:
        self.unit = unit
        self.build = unit.build
        self.parsed = parsed
        self.text = parsed.text
        self.arithmetic = Arithmetic(self.build)
        self.arrays = Arrays(self)
        self.calls = CallTranslator(self)
        self.fresh = False
        self.locals: set[str] = set(parsed.enclosing)

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        self.text.refuse(node, message)

    def expr(self, node: ast.expr, env: Variables) -> Operand:
        """A term and its type; `fresh` tells of an array whether it is new."""
        self.fresh = False
        where = self.text.where(node)
        match node:
            case ast.Constant(value=value):
                return self._constant(node, value)
            case ast.Name(id=name):
                return self._name(node, name, env)
            case ast.BinOp():
                return self._binary(node, env)
            case ast.UnaryOp():
                return self._unary(node, env)
            case ast.Compare():
                return self._compare(node, env), BOOL
            case ast.BoolOp():
                return self._logical(node, env), BOOL
            case ast.IfExp():
                return self._choice(node, env)
            case ast.Tuple(elts=items):
                return self._tuple(where, items, env)
            case ast.Call():
                return self.calls.call(node, env)
            case ast.Subscript():
                return self.arrays.item(node, env)
            case ast.Attribute():
                return self._attribute(node, env)
            case ast.Lambda():
                return self.nested(node, "lambda", env)
        return self.refuse(node, _instead_of_expression(node))

    def number(self, node: ast.expr, env: Variables) -> Operand:
        """An expression that has to be a number."""
        return self.as_number(node, self.expr(node, env))

    def as_number(self, node: ast.AST, operand: Operand) -> Operand:
        core, type_ = self.arithmetic.number(self.text.where(node), operand)
        if type_ not in (*NUMBERS, UNKNOWN):
            self.refuse(
                node, f"a number is needed here, and this is {kind_of_type(type_)}"
            )
        return core, type_

    def condition(self, node: ast.expr, env: Variables) -> Core:
        """An expression as a condition: a number is true unless it is zero."""
        core, type_ = self.expr(node, env)
        where = self.text.where(node)
        if type_ in NUMBERS:
            return self.arithmetic.inverse(where, Prim(where, "zero?", (core,)))
        if type_ not in (BOOL, UNKNOWN):
            self.refuse(
                node, f"a condition is a bool or a number, not {kind_of_type(type_)}"
            )
        return core

    def _constant(self, node: ast.AST, value: Any) -> Operand:
        where = self.text.where(node)
        if value is None:
            return Const(where, ()), NONE
        if not isinstance(value, bool | int | float):
            kind = type(value).__name__
            self.refuse(
                node,
                f"a {kind} is no value of a compiled function; it has floats, ints, "
                "bools, tuples and arrays of floats",
            )
        try:
            return literal(where, value)
        except OverflowError:
            return self.refuse(
                node,
                "an int above 2**53 would be rounded; write a float, such as "
                f"`{float(value)!r}`",
            )

    def _name(self, node: ast.AST, name: str, env: Variables) -> Operand:
        slot = env.get(name)
        if slot is not None:
            return Var(self.text.where(node), slot.name), slot.type
        return self.static(node, name, self.outside(node, name))

    def outside(self, node: ast.AST, name: str) -> Any:
        """The value of a name that the function does not bind."""
        local = name in self.locals
        value = MISSING if local else self.unit.look_up(self.parsed, name)
        if value is MISSING:
            self.refuse(
                node,
                f"`{name}` has no value here on some way through the function; give it "
                "one before",
            )
        return value

    def static(self, node: ast.AST, name: str, value: Any) -> Operand:
        found = static_value(self.text.where(node), value)
        if found is None:
            kind = type(value).__name__
            self.refuse(
                node,
                f"`{name}` is a {kind}, which is not compiled; a name of the outside "
                "is a number, a bool, a tuple of them, a function or a module (pass an "
                "array as an argument)",
            )
        return found

    def static_object(self, node: ast.expr, env: Variables) -> Any:
        """What an expression such as `math.sin` stands for; `MISSING` for another."""
        if isinstance(node, ast.Name) and node.id not in {*env, *self.locals}:
            return self.unit.look_up(self.parsed, node.id)
        if isinstance(node, ast.Attribute):
            base = self.static_object(node.value, env)
            if isinstance(base, ModuleType):
                return self.unit.attribute(base, node.attr)
        return MISSING

    def _attribute(self, node: ast.Attribute, env: Variables) -> Operand:
        value = self.static_object(node, env)
        if value is not MISSING:
            return self.static(node, ast.unparse(node), value)
        return self.arrays.attribute(node, env)

    def _binary(self, node: ast.BinOp, env: Variables) -> Operand:
        left, right = self.expr(node.left, env), self.expr(node.right, env)
        return self.apply_binary(node, node.op, left, right)

    def apply_binary(
        self, node: ast.AST, op: ast.operator, left: Operand, right: Operand
    ) -> Operand:
        where = self.text.where(node)
        if isinstance(op, ast.MatMult):
            return self.arrays.product(node, left, right)
        if isinstance(left[1], ArrayType) or isinstance(right[1], ArrayType):
            function = _ELEMENTWISE.get(type(op))
            if function is None:
                self.refuse(
                    node, "this operator is not compiled for arrays; use a loop"
                )
            return self.arrays.elementwise(node, function, left, right)
        left, right = self.as_number(node, left), self.as_number(node, right)
        result = self.arithmetic.binary(where, op, left, right)
        if result is None:
            self.refuse(node, "operators on bits are not compiled; use arithmetic")
        return result

    def _unary(self, node: ast.UnaryOp, env: Variables) -> Operand:
        where = self.text.where(node)
        if isinstance(node.op, ast.Not):
            return self.arithmetic.inverse(
                where, self.condition(node.operand, env)
            ), BOOL
        operand = self.expr(node.operand, env)
        if isinstance(operand[1], ArrayType) and isinstance(node.op, ast.USub):
            return self.arrays.each(node, FunctionType(prelude.item_negative), operand)
        operand = self.as_number(node, operand)
        if isinstance(node.op, ast.UAdd):
            return operand
        if not isinstance(node.op, ast.USub):
            self.refuse(node, "operators on bits are not compiled; use arithmetic")
        return self.arithmetic.negative(where, operand)

    def _compare(self, node: ast.Compare, env: Variables) -> Core:
        """`a < b < c`: each operand once, up to the first that fails."""
        left, _ = self.number(node.left, env)
        return self._chain(node, left, node.ops, node.comparators, env)

    def _chain(
        self,
        node: ast.Compare,
        left: Core,
        ops: list[ast.cmpop],
        rest: list[ast.expr],
        env: Variables,
    ) -> Core:
        where = self.text.where(node)
        right, _ = self.number(rest[0], env)
        if len(ops) == 1:
            return self._test(node, ops[0], left, right)

        def both(a: Core, b: Core) -> Core:
            first = self._test(node, ops[0], a, b)
            more = self._chain(node, b, ops[1:], rest[1:], env)
            return If(where, first, more, Const(where, False))

        return self.arithmetic.named(where, (left, right), both)

    def _test(self, node: ast.Compare, op: ast.cmpop, a: Core, b: Core) -> Core:
        result = self.arithmetic.compare(self.text.where(node), op, a, b)
        if result is None:
            self.refuse(node, "only `<`, `<=`, `>`, `>=`, `==` and `!=` are compiled")
        return result

    def _logical(self, node: ast.BoolOp, env: Variables) -> Core:
        where = self.text.where(node)
        for each in node.values:
            if self.expr(each, env)[1] not in (BOOL, UNKNOWN):
                self.refuse(each, "`and` and `or` take bools; compare this with 0")
        result = self.condition(node.values[-1], env)
        for each in reversed(node.values[:-1]):
            test = self.condition(each, env)
            if isinstance(node.op, ast.And):
                result = If(where, test, result, Const(where, False))
            else:
                result = If(where, test, Const(where, True), result)
        return result

    def _choice(self, node: ast.IfExp, env: Variables) -> Operand:
        test = self.condition(node.test, env)
        (a, s), (b, t) = self.expr(node.body, env), self.expr(node.orelse, env)
        self.share(node.body, env)
        self.share(node.orelse, env)
        self.fresh = False
        try:
            return If(self.text.where(node), test, a, b), join(s, t)
        except NoCommonType as error:
            return self.refuse(node, f"the two values are {error}; make them alike")

    def _tuple(self, where: Where, items: list[ast.expr], env: Variables) -> Operand:
        parts = [self.expr(item, env) for item in items]
        for item in items:
            self.share(item, env)
        self.fresh = False
        types = TupleType(tuple(type_ for _, type_ in parts))
        return tuple_of(where, [core for core, _ in parts]), types

    def share(self, node: ast.AST, env: Variables) -> None:
        """Note that the arrays in a variable have a second name from now on."""
        if isinstance(node, ast.Name) and node.id in env:
            slot = env[node.id]
            if slot.owned:
                for name, other in list(env.items()):
                    if other.name == slot.name:
                        env[name] = replace(other, owned=False)

    def nested(
        self, node: ast.FunctionDef | ast.Lambda, name: str, env: Variables
    ) -> Operand:
        """A function inside this one: the tuple of what it takes from outside."""
        where = self.text.where(node)
        taken = [each for each in reads(node) if each in env and each != name]
        names = parameters(node)
        with_default = names[len(names) - len(node.args.defaults) :]
        parts = [self._name(node, each, env) for each in taken]
        for each in taken:
            self.share(ast.Name(each, ast.Load()), env)
        defaults = [self.expr(each, env) for each in node.args.defaults]
        labels = (*taken, *(f"default {each}" for each in with_default))
        parts += defaults
        enclosing = frozenset(self.locals)
        parsed = replace(self.parsed, node=node, name=name, enclosing=enclosing)
        captured = tuple((n, t) for n, (_, t) in zip(labels, parts, strict=True))
        type_ = FunctionType(Nested(parsed, tuple(with_default)), captured)
        self.fresh = False
        return tuple_of(where, [core for core, _ in parts]), type_

    def opened(self, where: Where, type_: TupleType, core: Core, index: int) -> Core:
        """An item of a tuple."""
        names = [self.build.fresh("item") for _ in type_.items]
        body = Var(where, names[index])
        return self.build.let(where, tuple_pattern(names), core, body)


def shares(type_: Type) -> bool:
    """Whether a second name for a value is a second name for an array."""
    return holds_arrays(type_)


def _instead_of_expression(node: ast.expr) -> str:
    match node:
        case ast.List() | ast.ListComp():
            return (
                "lists are not compiled; use a tuple for a few values, or an array "
                "from `numpy.zeros(n)` that a loop fills"
            )
        case ast.Dict() | ast.Set() | ast.DictComp() | ast.SetComp():
            return "dicts and sets are not compiled; use tuples or arrays"
        case ast.JoinedStr():
            return "strings are not compiled; print outside of the compiled function"
        case ast.GeneratorExp():
            return "generators are not compiled; write a loop"
        case ast.NamedExpr():
            return "`:=` is not compiled; assign the variable in a line of its own"
        case ast.Starred():
            return "`*` is not compiled here; write the items one by one"
        case _:
            return f"`{type(node).__name__}` is not compiled; see the subset's page"


__all__ = ["FLOAT", "INT", "Variables", "Expressions", "Slot", "shares"]

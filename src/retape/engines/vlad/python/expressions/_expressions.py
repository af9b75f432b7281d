"""Python's expressions in the core language, each with its type."""

import ast
from dataclasses import replace
from types import ModuleType
from typing import Any, NoReturn

from retape.engines.vlad.language._core import Const, Core, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import NEGATE
from retape.engines.vlad.python.expressions._array_items import ArrayItems
from retape.engines.vlad.python.expressions._array_parts import ArrayParts
from retape.engines.vlad.python.expressions._arrays import Arrays
from retape.engines.vlad.python.expressions._calls import CallTranslator
from retape.engines.vlad.python.expressions._conditions import Conditions
from retape.engines.vlad.python.expressions._lists import Lists
from retape.engines.vlad.python.expressions._records import Records, is_record
from retape.engines.vlad.python.expressions._unit import Nested, Unit
from retape.engines.vlad.python.expressions._whole_arrays import ON_ARRAYS, WholeArrays
from retape.engines.vlad.python.library import _numbers
from retape.engines.vlad.python.read._names import (
    InnerDefinition,
    default_of,
    reads,
    with_default,
)
from retape.engines.vlad.python.read._source import MISSING, Parsed
from retape.engines.vlad.python.read._types import (
    BOOL,
    INT,
    NONE,
    NUMBERS,
    UNKNOWN,
    ArrayType,
    FunctionType,
    ListType,
    TupleType,
    Type,
    holds_arrays,
    kind_of_type,
)
from retape.engines.vlad.python.read._variables import Variables, share
from retape.engines.vlad.python.terms._arithmetic import Arithmetic, Operand, literal
from retape.engines.vlad.python.terms._core_builder import tuple_of, tuple_pattern
from retape.engines.vlad.python.terms._statics import static_value

_OF_MASKS: dict[type[ast.operator], Any] = {
    ast.BitAnd: _numbers.both,
    ast.BitOr: _numbers.either,
}


def is_mask(type_: Type) -> bool:
    """Whether a type is of arrays of bools."""
    return isinstance(type_, ArrayType) and type_.item is BOOL


class Expressions:
    """The expressions of one function."""

    def __init__(self, unit: Unit, parsed: Parsed) -> None:
        self.unit = unit
        self.build = unit.build
        self.parsed = parsed
        self.text = parsed.text
        self.arithmetic = Arithmetic(self.build)
        self.conditions = Conditions(self)
        self.arrays = Arrays(self)
        self.wholes = WholeArrays(self)
        self.items = ArrayItems(self)
        self.parts = ArrayParts(self)
        self.lists = Lists(self)
        self.records = Records(self)
        self.calls = CallTranslator(self)
        self.locals: set[str] = set(parsed.enclosing)

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        self.text.refuse(node, message)

    def expr(self, node: ast.expr, env: Variables) -> Operand:
        """A term, and what is known of its value."""
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
                return self.conditions.compare(node, env)
            case ast.BoolOp():
                return Operand(self.conditions.logical(node, env), BOOL)
            case ast.IfExp():
                return self.conditions.choice(node, env)
            case ast.Tuple(elts=items):
                return self._tuple(where, items, env)
            case ast.List():
                return self.lists.literal(node, env)
            case ast.ListComp():
                return self.lists.comprehension(node, env)
            case ast.Dict():
                return self.records.dict_(node, env)
            case ast.Call():
                return self.calls.call(node, env)
            case ast.Subscript():
                return self.items.item(node, env)
            case ast.Attribute():
                return self._attribute(node, env)
            case ast.Lambda():
                core, (type_,) = self.nested({"lambda": node}, env)
                return Operand(core, type_)
        return self.refuse(node, _instead_of_expression(node))

    def number(self, node: ast.expr, env: Variables) -> Operand:
        """An expression that has to be a number."""
        return self.as_number(node, self.expr(node, env))

    def as_number(self, node: ast.AST, operand: Operand) -> Operand:
        number = self.arithmetic.number(self.text.where(node), operand)
        if number.type not in (*NUMBERS, UNKNOWN):
            kind = kind_of_type(number.type)
            remedy = (
                "; write a loop over it, or `np.array(...)` of it for arithmetic"
                if isinstance(number.type, ListType)
                else ""
            )
            self.refuse(node, f"a number is needed here, and this is {kind}{remedy}")
        return number

    def written(self, node: ast.AST, function: Any, operands: list[Operand]) -> Operand:
        """A function of our own library, applied."""
        nothing = Const(self.text.where(node), ())
        key = self.unit.written(function, self.text.where(node))
        made = self.calls.of_function(node, FunctionType(key), nothing, operands)
        return replace(made, ways=())  # it is no call of the program's own

    def refuse_ints(self, node: ast.AST, type_: Type) -> None:
        """Refuse arithmetic with a whole array of ints."""
        if isinstance(type_, ArrayType) and type_.item is BOOL:
            self.refuse(
                node,
                "an array of bools is for `np.where(mask, a, b)`, `&`, `|` and `~`; "
                "write `np.where(mask, 1.0, 0.0)` for numbers",
            )
        if isinstance(type_, ArrayType) and type_.item is INT:
            self.refuse(
                node,
                "an array of ints is only read, as in `b[a[i]]`; for arithmetic pass "
                "`a.astype(float)`, and take `int(a[i])` where an item is an index",
            )

    def _constant(self, node: ast.AST, value: Any) -> Operand:
        where = self.text.where(node)
        if value is None:
            return Operand(Const(where, ()), NONE)
        if not isinstance(value, bool | int | float):
            kind = type(value).__name__
            self.refuse(
                node,
                f"a {kind} is not a value of a compiled function; it has floats, ints, "
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
            return Operand(Var(self.text.where(node), slot.name), slot.type)
        return self.static(node, name, self.outside(node, name))

    def outside(self, node: ast.AST, name: str) -> Any:
        """The value of a name that the function does not bind."""
        local = name in self.locals
        value = MISSING if local else self.unit.look_up(self.parsed, name)
        if value is MISSING:
            self.refuse(
                node,
                f"`{name}` has no value here on some way through the function; give it "
                "one before, or, if it is a function, write its `def` directly before "
                "or after the `def` that calls it",
            )
        return value

    def static(self, node: ast.AST, name: str, value: Any) -> Operand:
        found = static_value(self.text.where(node), value)
        if found is None:
            kind = type(value).__name__
            self.refuse(
                node,
                f"`{name}` is a {kind}, which is not compiled; a name of the outside "
                "is a number, a bool, a tuple of them, a function, a named tuple or a "
                "frozen dataclass, or a module (pass an array as an argument)",
            )
        return found

    def static_object(self, node: ast.expr, env: Variables) -> Any:
        """The object that an expression such as `math.sin` names, or `MISSING`."""
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
        old = self.expr(node.value, env)
        if is_record(old.type):
            return self.records.attribute(node, old)
        return self.arrays.attribute(node, old)

    def _binary(self, node: ast.BinOp, env: Variables) -> Operand:
        if isinstance(node.op, ast.Mult) and isinstance(node.left, ast.List):
            if len(node.left.elts) == 1:
                value = self.expr(node.left.elts[0], env)
                return self.lists.repeated(node, value, self.expr(node.right, env))
        left, right = self.expr(node.left, env), self.expr(node.right, env)
        return self.apply_binary(node, node.op, left, right)

    def apply_binary(
        self, node: ast.AST, op: ast.operator, left: Operand, right: Operand
    ) -> Operand:
        where = self.text.where(node)
        if is_mask(left.type) and is_mask(right.type) and type(op) in _OF_MASKS:
            function = _OF_MASKS[type(op)]
            return self.wholes.by_item(node, function, [left, right], BOOL)
        for each in (left.type, right.type):
            self.refuse_ints(node, each)
        if isinstance(op, ast.MatMult):
            return self.arrays.product(node, left, right)
        if isinstance(left.type, ArrayType) or isinstance(right.type, ArrayType):
            if type(op) not in ON_ARRAYS:
                self.refuse(
                    node, "this operator is not compiled for arrays; use a loop"
                )
            return self.wholes.binary(node, op, left, right)
        left, right = self.as_number(node, left), self.as_number(node, right)
        result = self.arithmetic.binary(where, op, left, right)
        if result is None:
            self.refuse(node, "operators on bits are not compiled; use arithmetic")
        return result

    def _unary(self, node: ast.UnaryOp, env: Variables) -> Operand:
        where = self.text.where(node)
        if isinstance(node.op, ast.Not):
            return Operand(
                self.arithmetic.inverse(
                    where, self.conditions.condition(node.operand, env)
                ),
                BOOL,
            )
        operand = self.expr(node.operand, env)
        if isinstance(node.op, ast.Invert) and is_mask(operand.type):
            return self.wholes.by_item(node, _numbers.opposite, [operand], BOOL)
        self.refuse_ints(node, operand.type)
        if isinstance(operand.type, ArrayType) and isinstance(node.op, ast.USub):
            return self.wholes.unary(node, NEGATE, operand)
        operand = self.as_number(node, operand)
        if isinstance(node.op, ast.UAdd):
            return operand
        if not isinstance(node.op, ast.USub):
            self.refuse(node, "operators on bits are not compiled; use arithmetic")
        return self.arithmetic.negative(where, operand)

    def _tuple(self, where: Where, items: list[ast.expr], env: Variables) -> Operand:
        parts: list[Operand] = []
        fresh: list[bool] = []
        for item in items:
            parts.append(self.expr(item, env))
            fresh.append(parts[-1].fresh or not holds_arrays(parts[-1].type))
        for item, part in zip(items, parts, strict=True):
            if holds_arrays(part.type):
                share(item, env)
        types = TupleType(tuple(each.type for each in parts))
        core = tuple_of(where, [each.core for each in parts])
        return Operand(core, types, all(fresh), tuple(fresh))

    def nested(
        self, definitions: dict[str, InnerDefinition], env: Variables
    ) -> tuple[Core, list[FunctionType]]:
        """Functions inside this one, by name, that call one another if they are many.

        They have one value: the tuple of what they all take from outside.
        """
        nodes = list(definitions.values())
        found = dict.fromkeys(each for node in nodes for each in reads(node))
        taken = [each for each in found if each in env and each not in definitions]
        parts = [(each, self._name(nodes[0], each, env)) for each in taken]
        for each in taken:
            share(ast.Name(each, ast.Load()), env)
        for name, node in definitions.items():
            for each, default in with_default(node).items():
                parts.append((default_of(name, each), self.expr(default, env)))
                if holds_arrays(parts[-1][1].type):
                    share(default, env)
        enclosing = frozenset(self.locals)
        group = [
            Nested(replace(self.parsed, node=node, name=name, enclosing=enclosing))
            for name, node in definitions.items()
        ]
        captured = tuple((name, part.type) for name, part in parts)
        for each in group:
            each.group = tuple(group)
        value = tuple_of(self.text.where(nodes[0]), [part.core for _, part in parts])
        return value, [FunctionType(each, captured) for each in group]

    def opened(self, where: Where, type_: TupleType, core: Core, index: int) -> Core:
        """An item of a tuple."""
        names = [self.build.fresh("item") for _ in type_.items]
        body = Var(where, names[index])
        return self.build.let(where, tuple_pattern(names), core, body)


def _instead_of_expression(node: ast.expr) -> str:
    match node:
        case ast.Set() | ast.DictComp() | ast.SetComp():
            return "sets are not compiled, nor are dicts whose keys running tells"
        case ast.JoinedStr():
            return 'a text is not a value here; print it, `print(f"...")`'
        case ast.GeneratorExp():
            return "generators are not compiled; write a list, `[... for ...]`"
        case ast.NamedExpr():
            return "`:=` is not compiled; assign the variable in a line of its own"
        case ast.Starred():
            return "`*` is not compiled here; write the items one by one"
        case _:
            return f"`{type(node).__name__}` is not compiled; see the subset's page"

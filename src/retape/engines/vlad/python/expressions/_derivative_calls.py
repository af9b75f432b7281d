"""CallTranslator of derivatives: of `grad(f)` as of any other function, nested at will.

    grad(f)(x, y)   ->   (let p = (*j (lambda (x) (f x y)) x 1) in (cdr p))

The arguments by which no derivative is taken are constants of the inner function.
"""

import ast
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from retape.engines.vlad.language._core import Const, Core, PConst, Prim, PVar, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import CONS
from retape.engines.vlad.python.read._types import (
    NUMBERS,
    ArrayType,
    FunctionType,
    ListType,
    TupleType,
    Type,
    as_floats,
    is_differentiable,
    kind_of_type,
)
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._core_builder import (
    nested_pattern,
    tuple_of,
    tuple_pattern,
)
from retape.engines.vlad.python.terms._statics import function_key

if TYPE_CHECKING:
    from retape.engines.vlad.python.expressions._expressions import Expressions


def derivative_call(
    owner: "Expressions",
    node: ast.AST,
    derivative: Any,
    args: list[Operand],
    keywords: dict[str, Operand],
) -> Operand:
    """The derivative of a function at arguments, by `grad` or `value_and_grad`."""
    kind, inner, argnums = derivative.__retape_derivative__
    if keywords:
        owner.refuse(node, "keyword arguments of a derivative are not compiled")
    where = owner.text.where(node)
    wanted = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    if not all(0 <= each < len(args) for each in wanted):
        owner.refuse(
            node, f"`argnums={argnums}` of a function of {len(args)} arguments"
        )
    names = [owner.build.fresh("arg") for _ in args]
    types = [
        as_floats(each.type) if i in wanted else each.type
        for i, each in enumerate(args)
    ]
    for each in wanted:
        if not is_differentiable(types[each]):
            owner.refuse(
                node,
                f"argument {each} is {kind_of_type(types[each])}, and no "
                "derivative is taken with respect to that; choose others with "
                "`argnums`",
            )
    primals = [
        Operand(Var(where, n), each.type) for n, each in zip(names, args, strict=True)
    ]
    active = _ActiveCall(owner, node, inner, primals, wanted)
    type_ = active.type_
    if type_ not in (*NUMBERS,):
        owner.refuse(
            node,
            f"the function returns {kind_of_type(type_)}; a gradient is of a function "
            "that returns one number",
        )
    kinds: Type = TupleType(tuple(types[i] for i in wanted))
    if isinstance(argnums, int):
        kinds = types[argnums]

    def result(value: Core, gradient: Core) -> Core:
        return gradient if kind == "grad" else tuple_of(where, [value, gradient])

    core = active.swept("gradient", Const(where, 1.0), result)
    if kind == "value_and_grad":
        kinds = TupleType((type_, kinds))
    for name, arg in reversed(list(zip(names, args, strict=True))):
        core = owner.build.let_var(where, name, arg.core, core)
    return Operand(core, kinds, fresh=True)


def pushforward_call(
    owner: "Expressions",
    node: ast.AST,
    inner: Any,
    operands: list[Operand],
    wanted: tuple[int, ...],
) -> Operand:
    """A function's value and its derivative along tangents, the last operands.

    Args:
        owner: The translator of the call.
        node: Where errors point to.
        inner: The function.
        operands: Its arguments, and a tangent for each wanted one.
        wanted: By which arguments the derivative is taken.
    """
    where = owner.text.where(node)
    count = len(operands) - len(wanted)
    active = _ActiveCall(owner, node, inner, operands[:count], wanted)
    type_ = active.type_
    if not is_differentiable(type_):
        owner.refuse(
            node, f"the function returns {kind_of_type(type_)}, which has no derivative"
        )
    tangents = tuple_of(where, [each.core for each in operands[count:]])
    pushed = Prim(where, "j*", (active.function("jvp"), active.inputs, tangents))
    primal, tangent = owner.build.fresh("value"), owner.build.fresh("tangent")
    result = shaped(owner, where, type_, Var(where, primal), Var(where, tangent))
    both = tuple_of(where, [Var(where, primal), result])
    pair = nested_pattern([PVar(primal), PVar(tangent)])
    kinds = TupleType((type_, as_floats(type_)))
    return Operand(owner.build.let(where, pair, pushed, both), kinds)


def pullback_call(
    owner: "Expressions",
    node: ast.AST,
    inner: Any,
    operands: list[Operand],
    wanted: tuple[int, ...],
) -> Operand:
    """A function's value and wanted cotangents; the last operand is the value's."""
    where = owner.text.where(node)
    *primals, cotangent = operands
    active = _ActiveCall(owner, node, inner, primals, wanted)
    type_ = active.type_
    if as_floats(type_) != cotangent.type:
        owner.refuse(
            node,
            f"the function returns {kind_of_type(type_)}, and the cotangent is "
            f"{kind_of_type(cotangent.type)}; make them alike",
        )

    def both(value: Core, cotangents: Core) -> Core:
        return tuple_of(where, [value, cotangents])

    types = tuple(as_floats(primals[each].type) for each in wanted)
    kinds = TupleType((type_, TupleType(types)))
    return Operand(active.swept("vjp", cotangent.core, both), kinds)


class _ActiveCall:
    """A call of a function, as a function of the arguments that are wanted.

    The others are what they are outside: an int among them stays an int.
    """

    def __init__(
        self,
        owner: "Expressions",
        node: ast.AST,
        inner: Any,
        primals: list[Operand],
        wanted: tuple[int, ...],
    ) -> None:
        self._owner, self._where = owner, owner.text.where(node)
        operands = list(primals)
        self._names = [owner.build.fresh("active") for _ in wanted]
        for each, name in zip(wanted, self._names, strict=True):
            variable = Var(self._where, name)
            operands[each] = Operand(variable, as_floats(primals[each].type))
        called, nothing = FunctionType(function_key(inner)), Const(self._where, ())
        made = owner.calls.of_function(node, called, nothing, operands)
        self._value, self.type_ = made.core, made.type
        self._primals = [primals[each] for each in wanted]
        self.inputs = tuple_of(self._where, [each.core for each in self._primals])

    def function(self, name: str) -> Core:
        pattern = tuple_pattern(self._names) if self._names else PConst(())
        return self._owner.build.function(self._where, name, pattern, self._value)

    def swept(
        self, name: str, cotangent: Core, result: Callable[[Core, Core], Core]
    ) -> Core:
        """What is made of the value and of the cotangents, which a sweep back gives."""
        owner, where = self._owner, self._where
        sweep = (self.function(name), self.inputs, cotangent)
        primal = owner.build.fresh("value")
        parts = [owner.build.fresh("cotangent") for _ in self._primals]
        found = [
            shaped(owner, where, as_floats(each.type), each.core, Var(where, part))
            for each, part in zip(self._primals, parts, strict=True)
        ]
        made = result(Var(where, primal), tuple_of(where, found))
        pattern = nested_pattern([PVar(primal), tuple_pattern(parts)])
        return owner.build.let(
            where, pattern, Prim(where, "checkpoint-*j", sweep), made
        )


def shaped(
    owner: "Expressions", where: Where, type_: Type, primal: Core, cotangent: Core
) -> Core:
    """A cotangent whose arrays have the shapes of those of its primal."""
    if isinstance(type_, ListType) or (isinstance(type_, ArrayType) and type_.rank > 1):
        shape, data, others, values = (
            owner.build.fresh(n) for n in ("shape", "data", "zeros", "values")
        )
        made = Prim(where, CONS, (Var(where, shape), Var(where, values)))
        right = nested_pattern([PVar(others), PVar(values)])
        inner = owner.build.let(where, right, cotangent, made)
        left = nested_pattern([PVar(shape), PVar(data)])
        return owner.build.let(where, left, primal, inner)
    if isinstance(type_, TupleType) and type_.items:
        left = [owner.build.fresh("p") for _ in type_.items]
        right = [owner.build.fresh("c") for _ in type_.items]
        parts = [
            shaped(owner, where, t, Var(where, p), Var(where, c))
            for t, p, c in zip(type_.items, left, right, strict=True)
        ]
        inner = owner.build.let(
            where, tuple_pattern(right), cotangent, tuple_of(where, parts)
        )
        return owner.build.let(where, tuple_pattern(left), primal, inner)
    return cotangent

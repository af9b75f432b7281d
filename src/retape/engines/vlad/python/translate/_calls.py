"""CallTranslator: of compiled functions, of library functions, and of derivatives."""

import ast
from types import FunctionType as PythonFunction
from typing import TYPE_CHECKING, Any, NoReturn

from retape.engines.vlad.language._core import Const, Core, If, Prim, Var
from retape.engines.vlad.python.read._library import known_function
from retape.engines.vlad.python.read._names import parameters
from retape.engines.vlad.python.read._source import MISSING
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    NUMBERS,
    UNKNOWN,
    ArrayType,
    FunctionType,
    TupleType,
    holds_arrays,
    kind_of_type,
)
from retape.engines.vlad.python.translate import _prelude as prelude
from retape.engines.vlad.python.translate._arithmetic import Operand
from retape.engines.vlad.python.translate._derivative_calls import derivative_call
from retape.engines.vlad.python.translate._statics import function_key, static_value
from retape.engines.vlad.python.translate._unit import Nested

if TYPE_CHECKING:
    from retape.engines.vlad.python.translate._expressions import Expressions, Variables


class CallTranslator:
    """Terms of calls."""

    def __init__(self, owner: "Expressions") -> None:
        self._owner = owner

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        self._owner.refuse(node, message)

    def call(self, node: ast.Call, env: "Variables") -> Operand:
        """A call, by what is called."""
        owner = self._owner
        if isinstance(node.func, ast.Attribute):
            value = owner.static_object(node.func, env)
            if value is MISSING:
                return self._method(node, node.func, env)
        function, type_ = owner.expr(node.func, env)
        if not isinstance(type_, FunctionType):
            self.refuse(node, f"{kind_of_type(type_)} is called, which is no function")
        args = [owner.expr(arg, env) for arg in self._plain(node)]
        keywords = {k.arg: owner.expr(k.value, env) for k in node.keywords}
        if None in keywords:
            self.refuse(node, "`**` is not compiled; write the arguments one by one")
        named = {str(k): v for k, v in keywords.items()}
        result = self.of_function(node, type_, function, args, named)
        if holds_arrays(result[1]) and not owner.fresh:
            for each in (*node.args, *(k.value for k in node.keywords)):
                owner.share(each, env)
        return result

    def _plain(self, node: ast.Call) -> list[ast.expr]:
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                self.refuse(arg, "`*` is not compiled; write the arguments one by one")
        return node.args

    def _method(
        self, node: ast.Call, function: ast.Attribute, env: "Variables"
    ) -> Operand:
        core, type_ = self._owner.expr(function.value, env)
        if isinstance(type_, ArrayType) and not node.args and not node.keywords:
            if function.attr == "copy":
                self._owner.fresh = True
                return core, type_
            if function.attr == "sum":
                return self._sum(node, (core, type_))
        return self.refuse(
            node,
            f"the method `{function.attr}` of {kind_of_type(type_)} is not compiled; "
            "arrays have `copy()` and `sum()`",
        )

    def of_function(
        self,
        node: ast.AST,
        type_: FunctionType,
        function: Core,
        args: list[Operand],
        keywords: dict[str, Operand] | None = None,
    ) -> Operand:
        """A known function, applied."""
        key = type_.key
        if hasattr(key, "__retape_derivative__"):
            return derivative_call(self._owner, node, key, args, keywords or {})
        if key is prelude.new_array:
            return self._owner.arrays.new(node, args[0], args[1][0])
        known = known_function(key)
        if known is None and isinstance(key, Nested | PythonFunction):
            return self._compiled(node, type_, function, args, keywords or {})
        if keywords:
            self.refuse(node, "keyword arguments of library functions are not compiled")
        kind, name = known or ("", "")
        if any(t is UNKNOWN for _, t in args):
            return Const(self._owner.text.where(node), ()), UNKNOWN
        match kind:
            case "math":
                return self._math(node, name, args)
            case "numpy":
                return self._numpy(node, key, name, args)
            case "array":
                return self._array(node, name, args)
        return self._builtin(node, name, args)

    def _compiled(
        self,
        node: ast.AST,
        type_: FunctionType,
        function: Core,
        args: list[Operand],
        keywords: dict[str, Operand],
    ) -> Operand:
        owner = self._owner
        where = owner.text.where(node)
        given = self._bound(node, type_, function, args, keywords)
        types = tuple(t for _, t in given)
        instance = owner.unit.instance(type_, types, node, owner.parsed)
        cores = [core for core, _ in given]
        if type_.captured:
            cores.insert(0, function)
        owner.fresh = instance.fresh
        return owner.unit.call(where, instance, cores), instance.returns

    def _bound(
        self,
        node: ast.AST,
        type_: FunctionType,
        function: Core,
        args: list[Operand],
        keywords: dict[str, Operand],
    ) -> list[Operand]:
        """An argument for each parameter: given, by name, or by default."""
        owner = self._owner
        key = type_.key
        parsed = key.parsed if isinstance(key, Nested) else owner.unit.parsed(key)
        spec = parsed.node.args
        if spec.vararg or spec.kwarg or spec.kwonlyargs:
            parsed.text.refuse(
                parsed.node, "`*` among parameters is not compiled; name each of them"
            )
        names = parameters(parsed.node)
        if len(args) > len(names):
            self.refuse(
                node, f"`{parsed.name}` takes {len(names)} arguments, not {len(args)}"
            )
        given = dict(zip(names, args, strict=False))
        for name, operand in keywords.items():
            if name not in names or name in given:
                self.refuse(node, f"`{parsed.name}` cannot be given `{name}` here")
            given[name] = operand
        for name in names:
            if name not in given:
                given[name] = self._default(node, type_, function, name, names)
        return [given[name] for name in names]

    def _default(
        self,
        node: ast.AST,
        type_: FunctionType,
        function: Core,
        name: str,
        names: list[str],
    ) -> Operand:
        owner, where = self._owner, self._owner.text.where(node)
        key = type_.key
        if isinstance(key, Nested):
            labels = [label for label, _ in type_.captured]
            if f"default {name}" in labels:
                types = TupleType(tuple(t for _, t in type_.captured))
                index = labels.index(f"default {name}")
                return owner.opened(where, types, function, index), types.items[index]
        else:
            defaults = key.__defaults__ or ()
            index = names.index(name) - len(names) + len(defaults)
            if index >= 0:
                value = static_value(where, defaults[index])
                if value is not None:
                    return value
                self.refuse(node, f"the default of `{name}` is not compiled; pass it")
        return self.refuse(node, f"the argument `{name}` is missing")

    # library functions

    def _counted(self, node: ast.AST, args: list[Operand], *counts: int) -> None:
        if len(args) not in counts:
            wanted = " or ".join(str(count) for count in counts)
            self.refuse(node, f"{wanted} arguments are compiled here, not {len(args)}")

    def _math(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        if name == "log" and len(args) == 2:
            (top, _), (bottom, _) = (self._math(node, "log", [a]) for a in args)
            return self._owner.arithmetic.binary(
                self._owner.text.where(node), ast.Div(), (top, FLOAT), (bottom, FLOAT)
            ) or (top, FLOAT)
        self._counted(node, args, 1)
        core, type_ = self._owner.as_number(node, args[0])
        where = self._owner.text.where(node)
        if name in ("sin", "cos", "tanh", "erf", "abs") and type_ is INT:
            return Prim(where, name, (core,)), FLOAT
        if name in ("tanh", "erf", "abs"):
            return Prim(where, name, (core,)), FLOAT
        return self._owner.arithmetic.finite(where, name, (core,)), FLOAT

    def _numpy(
        self, node: ast.AST, key: Any, name: str, args: list[Operand]
    ) -> Operand:
        self._counted(node, args, 1)
        if isinstance(args[0][1], ArrayType):
            return self._owner.arrays.each(node, FunctionType(key), args[0])
        core, _ = self._owner.as_number(node, args[0])
        return Prim(self._owner.text.where(node), name, (core,)), FLOAT

    def _array(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        owner, where = self._owner, self._owner.text.where(node)
        match name:
            case "zeros" | "empty" | "ones":
                self._counted(node, args, 1)
                value = Const(where, 1.0 if name == "ones" else 0.0)
                return owner.arrays.new(node, args[0], value)
            case "full":
                self._counted(node, args, 2)
                value, _ = owner.as_number(node, args[1])
                return owner.arrays.new(node, args[0], value)
            case "dot":
                self._counted(node, args, 2)
                return owner.arrays.product(node, args[0], args[1])
            case "sum":
                self._counted(node, args, 1)
                return self._sum(node, args[0])
            case "copy":
                self._counted(node, args, 1)
                owner.fresh = True
                return args[0]
            case "power":
                self._counted(node, args, 2)
                return owner.apply_binary(node, ast.Pow(), args[0], args[1])
            case "arctan":
                return self._builtin(node, "atan", args)
        return self._builtin(node, "atan2", args)

    def _sum(self, node: ast.AST, operand: Operand) -> Operand:
        where = self._owner.text.where(node)
        core, type_ = operand
        if not isinstance(type_, ArrayType):
            self.refuse(
                node, f"the sum of {kind_of_type(type_)} is not compiled; use a loop"
            )
        if type_.rank == 2:
            core = self._owner.arrays.flat(where, core)
        return self.of_function(
            node,
            FunctionType(prelude.array_sum),
            Const(where, ()),
            [(core, ArrayType(1))],
        )

    def _builtin(self, node: ast.AST, name: str, args: list[Operand]) -> Operand:
        owner, where = self._owner, self._owner.text.where(node)
        if name == "len":
            self._counted(node, args, 1)
            return owner.arrays.length(node, args[0])
        if name == "sum":
            self._counted(node, args, 1)
            return self._sum(node, args[0])
        if name == "range":
            self.refuse(node, "`range` is compiled in the head of a `for` only")
        numbers = [owner.as_number(node, arg) for arg in args]
        cores = tuple(core for core, _ in numbers)
        types = [t for _, t in numbers]
        arithmetic = owner.arithmetic
        match name:
            case "min" | "max":
                if len(cores) < 2:
                    self.refuse(node, f"`{name}` is compiled for two or more numbers")
                result = cores[0]
                for core in cores[1:]:
                    result = Prim(where, name, (result, core))
                return result, INT if set(types) == {INT} else FLOAT
            case "pow" | "math.pow":
                self._counted(node, args, 2)
                if name == "pow":
                    return arithmetic.power(where, numbers[0], numbers[1])
                return arithmetic.finite(where, "expt", cores), FLOAT
            case "atan2":
                self._counted(node, args, 2)
                return Prim(where, "atan", cores), FLOAT
            case "hypot":
                self._counted(node, args, 2)
                return arithmetic.named(
                    where, cores, lambda *xs: _hypotenuse(xs)
                ), FLOAT
        self._counted(node, args, 1)
        core, type_ = numbers[0]
        match name:
            case "abs":
                return Prim(where, "abs", (core,)), type_
            case "float":
                return core, FLOAT
            case "bool":
                return arithmetic.inverse(where, Prim(where, "zero?", (core,))), BOOL
            case "int":
                return (
                    (core, INT)
                    if type_ is INT
                    else (
                        arithmetic.truncated(where, core),
                        INT,
                    )
                )
            case "floor":
                return arithmetic.rounded_down(where, core), INT
            case "ceil":
                return arithmetic.ceiling(where, core), INT
            case "atan":
                return Prim(where, "atan", (core, Const(where, 1.0))), FLOAT
            case "isfinite":
                return Prim(where, "finite?", (core,)), BOOL
            case "isnan":

                def differs(x: Core) -> Core:
                    equal = Prim(where, "=", (x, x))
                    return If(where, equal, Const(where, False), Const(where, True))

                return arithmetic.named(where, (core,), differs), BOOL
            case "degrees":
                return Prim(where, "*", (core, Const(where, 57.29577951308232))), FLOAT
            case "radians":
                return Prim(
                    where, "*", (core, Const(where, 0.017453292519943295))
                ), FLOAT
        return self.refuse(node, f"`{name}` is not compiled")


def _hypotenuse(xs: tuple[Core, ...]) -> Core:
    """The length of a vector of two numbers."""
    a, b = xs
    where = a.where
    squares = (Prim(where, "*", (a, a)), Prim(where, "*", (b, b)))
    return Prim(where, "sqrt", (Prim(where, "+", squares),))


__all__ = ["NUMBERS", "CallTranslator", "Var", "function_key"]

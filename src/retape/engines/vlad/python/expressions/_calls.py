"""Calls: of compiled functions, of library functions, and of derivatives."""

import ast
from types import FunctionType as PythonFunction
from typing import TYPE_CHECKING, NoReturn

from retape.engines.vlad.language._core import Core
from retape.engines.vlad.python.expressions._derivative_calls import derivative_call
from retape.engines.vlad.python.expressions._library_calls import LibraryCalls
from retape.engines.vlad.python.expressions._refusals import instead_of_derivative
from retape.engines.vlad.python.expressions._unit import Nested
from retape.engines.vlad.python.expressions._variables import share
from retape.engines.vlad.python.library._table import METHODS
from retape.engines.vlad.python.read._library import known_function
from retape.engines.vlad.python.read._names import default_of, parameters
from retape.engines.vlad.python.read._source import MISSING, CalledFile
from retape.engines.vlad.python.read._types import (
    ArrayType,
    FunctionType,
    OneOf,
    TupleType,
    holds_arrays,
    kind_of_type,
)
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._statics import static_value

if TYPE_CHECKING:
    from retape.engines.vlad.python.expressions._expressions import Expressions
    from retape.engines.vlad.python.expressions._variables import Variables


class CallTranslator:
    """Terms of calls."""

    def __init__(self, owner: "Expressions") -> None:
        self._owner = owner
        self._library = LibraryCalls(owner)

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        self._owner.refuse(node, message)

    def call(self, node: ast.Call, env: "Variables", *, tells: bool = False) -> Operand:
        """A call, by what is called; one that `tells` may give `OneOf` some types."""
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
        result = self.of_function(node, type_, function, args, named, tells=tells)
        if holds_arrays(result[1]) and not owner.fresh:
            nodes = [*node.args, *(k.value for k in node.keywords)]
            for each, given in zip(nodes, [*args, *named.values()], strict=True):
                if holds_arrays(given[1]):
                    share(each, env)
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
        if isinstance(type_, ArrayType) and function.attr in METHODS:
            owner = self._owner
            args = [(core, type_), *(owner.expr(each, env) for each in node.args)]
            named = {str(k.arg): owner.expr(k.value, env) for k in node.keywords}
            return self._library.call(node, ("array", function.attr), args, named)
        return self.refuse(
            node,
            f"the method `{function.attr}` of {kind_of_type(type_)} is not compiled; "
            f"arrays have {', '.join(f'`{each}`' for each in sorted(METHODS))}",
        )

    def of_function(
        self,
        node: ast.AST,
        type_: FunctionType,
        function: Core,
        args: list[Operand],
        keywords: dict[str, Operand] | None = None,
        *,
        tells: bool = False,
    ) -> Operand:
        """A known function, applied."""
        key = type_.key
        if hasattr(key, "__retape_derivative__"):
            result = derivative_call(self._owner, node, key, args, keywords or {})
            self._owner.ways = ()
            return result
        self._owner.ways = ()
        known = known_function(key)
        if getattr(key, "__module__", None) == "retape.native":
            self.refuse(node, instead_of_derivative(key.__name__))
        text = self._owner.text
        if isinstance(text, CalledFile) and isinstance(key, PythonFunction):
            key = self._owner.unit.written(key, text.place)
            type_ = FunctionType(key)
        if known is None and isinstance(key, Nested | PythonFunction):
            given = self._bound(node, type_, function, args, keywords or {})
            return self._compiled(node, type_, function, given, tells)
        return self._library.call(node, known or ("", ""), args, keywords or {})

    def _compiled(
        self,
        node: ast.AST,
        type_: FunctionType,
        function: Core,
        given: list[Operand],
        tells: bool,
    ) -> Operand:
        owner = self._owner
        where = owner.text.where(node)
        types = tuple(t for _, t in given)
        instance = owner.unit.instance(type_, types, node, owner.parsed)
        returns = instance.returns
        if tells and len(instance.ways) > 1:
            returns = OneOf(instance.ways)
            instance = owner.unit.instance(type_, types, node, owner.parsed, tells=True)
        cores = [core for core, _ in given]
        if type_.captured:
            cores.insert(0, function)
        owner.fresh, owner.ways = instance.fresh, instance.ways
        return owner.unit.call(where, instance, cores), returns

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
            label = default_of(key.parsed.name, name)
            if label in labels:
                types = TupleType(tuple(t for _, t in type_.captured))
                index = labels.index(label)
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

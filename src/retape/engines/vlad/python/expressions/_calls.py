"""Calls: of compiled functions, of library functions, and of derivatives."""

import ast
from dataclasses import replace
from types import FunctionType as PythonFunction
from typing import TYPE_CHECKING, Any

import numpy as np

from retape.engines.vlad.language._core import Const, Core
from retape.engines.vlad.python.expressions._derivative_calls import derivative_call
from retape.engines.vlad.python.expressions._library_calls import LibraryCalls
from retape.engines.vlad.python.expressions._records import is_record
from retape.engines.vlad.python.expressions._unit import Nested, Terms
from retape.engines.vlad.python.library._table import FUNCTIONS, METHODS, known_function
from retape.engines.vlad.python.read._names import default_of, parameters
from retape.engines.vlad.python.read._source import MISSING, CalledFile
from retape.engines.vlad.python.read._types import (
    FLOAT,
    INT,
    ArrayType,
    FunctionType,
    ListType,
    OneOf,
    TupleType,
    holds_arrays,
    is_record_class,
    kind_of_type,
)
from retape.engines.vlad.python.read._variables import share
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._statics import static_value

if TYPE_CHECKING:
    from retape.engines.vlad.python.expressions._expressions import Expressions
    from retape.engines.vlad.python.read._variables import Variables


_OF_LITERALS: tuple[Any, ...] = (np.array, np.asarray, list, sum, min, max)
"""What is given a list, or what is written as one."""


def _with_tuples(node: ast.expr) -> ast.expr:
    """Lists within a list that is written out as tuples: they are rows."""
    if not isinstance(node, ast.List):
        return node
    items = [
        ast.copy_location(ast.Tuple(each.elts, ast.Load()), each)
        if isinstance(each, ast.List)
        else each
        for each in node.elts
    ]
    return ast.copy_location(ast.List(items, ast.Load()), node)


def _each_of(node: ast.expr) -> ast.ListComp:
    """`list(range(n))` as `[i for i in range(n)]`."""
    name = "item"
    each = ast.comprehension(ast.Name(name, ast.Store()), node, [], 0)
    return ast.copy_location(ast.ListComp(ast.Name(name, ast.Load()), [each]), node)


class CallTranslator(Terms):
    """Terms of calls."""

    def __init__(self, owner: "Expressions") -> None:
        super().__init__(owner)
        self._library = LibraryCalls(owner)

    def call(self, node: ast.Call, env: "Variables", *, tells: bool = False) -> Operand:
        """A call, by what is called; one that `tells` may give `OneOf` some types."""
        owner = self._owner
        if isinstance(node.func, ast.Attribute):
            value = owner.static_object(node.func, env)
            if value is MISSING:
                return self._method(node, node.func, env)
        called = owner.static_object(node.func, env)
        if any(called is each for each in _OF_LITERALS):
            return self._of_literal(node, called, env)
        function = owner.expr(node.func, env)
        type_ = function.type
        if not isinstance(type_, FunctionType):
            self.refuse(node, f"{kind_of_type(type_)} is called, which is no function")
        args, named = self._arguments(node, env)
        result = self.of_function(node, type_, function.core, args, named, tells=tells)
        return self._sharing(result, node, [*args, *named.values()], env)

    def _sharing(
        self, result: Operand, node: ast.Call, given: list[Operand], env: "Variables"
    ) -> Operand:
        """A value: if its arrays are not new, they may be those of its arguments."""
        if holds_arrays(result.type) and not result.fresh:
            named = (k.value for k in node.keywords if k.arg != "dtype")
            nodes = [*node.args, *named]
            for each, operand in zip(nodes, given, strict=True):
                if holds_arrays(operand.type):
                    share(each, env)
        return result

    def _plain(self, node: ast.Call) -> list[ast.expr]:
        for arg in node.args:
            if isinstance(arg, ast.Starred):
                self.refuse(arg, "`*` is not compiled; write the arguments one by one")
        return node.args

    def _arguments(
        self, node: ast.Call, env: "Variables"
    ) -> tuple[list[Operand], dict[str, Operand]]:
        """Arguments by place, and by name."""
        owner = self._owner
        args = [owner.expr(arg, env) for arg in self._plain(node)]
        keywords = {
            k.arg: owner.expr(k.value, env)
            for k in node.keywords
            if not self._is_double(k, env)
        }
        if None in keywords:
            self.refuse(node, "`**` is not compiled; write the arguments one by one")
        return args, {str(k): v for k, v in keywords.items()}

    def _is_double(self, keyword: ast.keyword, env: "Variables") -> bool:
        """Whether this is `dtype=float`, which arrays are of anyway."""
        if keyword.arg != "dtype":
            return False
        named = self._owner.static_object(keyword.value, env)
        if named is not float and named is not np.float64:
            self.refuse(
                keyword,
                "arrays are of doubles; leave `dtype` out, or write `dtype=float`",
            )
        return True

    def _of_literal(self, node: ast.Call, called: Any, env: "Variables") -> Operand:
        """`np.array([a, b])`, `sum(x for x in xs)`: of a list that is gone then."""
        owner = self._owner
        keywords = [k for k in node.keywords if not self._is_double(k, env)]
        if len(node.args) != 1 or keywords:
            name = ast.unparse(node.func)
            if called in (sum, min, max) and len(node.args) > 1 and not node.keywords:
                numbers = [owner.expr(arg, env) for arg in self._plain(node)]
                nothing = Const(owner.text.where(node), ())
                return self.of_function(node, FunctionType(called), nothing, numbers)
            self.refuse(node, f"`{name}` is compiled with one argument")
        (arg,) = self._plain(node)
        if isinstance(arg, ast.GeneratorExp):
            value = owner.lists.comprehension(arg, env)
        elif called is list and isinstance(arg, ast.Call):
            value = owner.lists.comprehension(_each_of(arg), env)
        elif called not in (list, sum, min, max):
            value = owner.expr(_with_tuples(arg), dict(env))  # it is copied
        else:
            value = owner.expr(arg, env)
        if value.type == ListType(INT) and len(keywords) < len(node.keywords):
            value = replace(value, type=ListType(FLOAT))
        return self._library.call(node, FUNCTIONS[called], [value], {})

    def _of_record(
        self, node: ast.Call, name: str, old: Operand, env: "Variables"
    ) -> Operand | None:
        """A method of a record; arrays in its value have another name."""
        owner, receiver = self._owner, node.func
        assert isinstance(receiver, ast.Attribute)
        args, named = self._arguments(node, env)
        result = owner.records.method(node, name, old, args, named)
        if result is None:
            return None
        if holds_arrays(result.type) and not result.fresh:
            share(receiver.value, env)
        return self._sharing(result, node, [*args, *named.values()], env)

    def _method(
        self, node: ast.Call, function: ast.Attribute, env: "Variables"
    ) -> Operand:
        old = self._owner.expr(function.value, env)
        type_ = old.type
        if is_record(type_):
            found = self._of_record(node, function.attr, old, env)
            if found is not None:
                return found
        if isinstance(type_, ListType):
            if function.attr == "copy" and not node.args:
                return self._owner.lists.copied(node, old)
            self.refuse(
                node,
                f"the method `{function.attr}` of a list is not compiled here; lists "
                "have `copy`, and `append` and `pop`, which stand in a line of their "
                "own, as `xs.append(x)` and `x = xs.pop()`",
            )
        if isinstance(type_, ArrayType) and function.attr in METHODS:
            owner = self._owner
            args = [old, *(owner.expr(each, env) for each in node.args)]
            named = {str(k.arg): owner.expr(k.value, env) for k in node.keywords}
            return self._library.call(node, METHODS[function.attr], args, named)
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
            return derivative_call(self._owner, node, key, args, keywords or {})
        if isinstance(key, type) and is_record_class(key):
            return self._owner.records.made(node, key, args, keywords or {})
        if key is replace and len(args) == 1 and is_record(args[0].type):
            return self._owner.records.replaced(node, args[0], keywords or {})
        known = known_function(key)
        if getattr(key, "__module__", None) == "retape.native":
            self.refuse(
                node,
                f"`native.{key.__name__}` is not compiled itself; make the derivative "
                "outside of the function, as `df = native.grad(f)`, and call `df` here",
            )
        text = self._owner.text
        if isinstance(text, CalledFile) and isinstance(key, PythonFunction):
            key = self._owner.unit.written(key, text.place)
            type_ = FunctionType(key)
        if known is None and isinstance(key, Nested | PythonFunction):
            given = self._bound(node, type_, function, args, keywords or {})
            return self._compiled(node, type_, function, given, tells)
        assert known is not None, "what is no function has no function's type"
        return self._library.call(node, known, args, keywords or {})

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
        types = tuple(each.type for each in given)
        instance = owner.unit.instance(type_, types, node, owner.parsed)
        returns = instance.returns
        if tells and len(instance.ways) > 1:
            returns = OneOf(instance.ways)
            instance = owner.unit.instance(type_, types, node, owner.parsed, tells=True)
        cores = [each.core for each in given]
        if type_.captured:
            cores.insert(0, function)
        core = owner.unit.call(where, instance, cores)
        return Operand(core, returns, instance.fresh, ways=instance.ways)

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
                return Operand(
                    owner.opened(where, types, function, index), types.items[index]
                )
        else:
            defaults = key.__defaults__ or ()
            index = names.index(name) - len(names) + len(defaults)
            if index >= 0:
                value = static_value(where, defaults[index])
                if value is not None:
                    return value
                self.refuse(node, f"the default of `{name}` is not compiled; pass it")
        return self.refuse(node, f"the argument `{name}` is missing")

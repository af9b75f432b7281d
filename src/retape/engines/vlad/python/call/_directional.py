"""Functions with one derivative along given tangents, or for given cotangents."""

import ast
from types import FunctionType as PythonFunction
from typing import Any

from retape._errors import GradientTypeError
from retape.engines.vlad.python.call._arguments import innermost, no_function
from retape.engines.vlad.python.call._callable import CompiledCallable
from retape.engines.vlad.python.call._values import (
    Tangent,
    type_of,
)
from retape.engines.vlad.python.expressions._derivative_calls import (
    pullback_call,
    pushforward_call,
)
from retape.engines.vlad.python.expressions._expressions import Expressions
from retape.engines.vlad.python.read._types import (
    as_floats,
    is_differentiable,
)
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._statics import function_key
from retape.engines.vlad.session._engines import (
    EngineName,
)
from retape.plan._base import Plan


class Pushforward(CompiledCallable):
    """A function and its directional derivative, by forward mode."""

    def __init__(self, function: Any, engine: EngineName) -> None:
        super().__init__(engine, None)
        if function_key(function) is None or innermost(function) is None:
            raise GradientTypeError(no_function(function))
        self._function = function

    def _source(self) -> PythonFunction:
        return innermost(self._function)

    def __call__(self, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        """The value at primals, and its derivative along tangents."""
        types = tuple(as_floats(type_of(each)) for each in primals)
        along = tuple(as_floats(type_of(each)) for each in tangents)
        if types != along or not all(is_differentiable(each) for each in types):
            raise GradientTypeError(
                "`jvp` takes two tuples of numbers, arrays and tuples of them, "
                "alike: a tangent for each primal"
            )
        for primal, tangent in zip(primals, tangents, strict=True):
            if getattr(primal, "shape", None) != getattr(tangent, "shape", None):
                raise GradientTypeError(
                    f"a tangent of shape {tangent.shape} for a primal of shape "
                    f"{primal.shape}; make them alike"
                )
        return self._run((*primals, *(Tangent(each) for each in tangents)))

    def _root(
        self, owner: Expressions, node: ast.AST, operands: list[Operand]
    ) -> Operand:
        half = len(operands) // 2
        return pushforward_call(owner, node, self._function, operands, half)


class Pullback(CompiledCallable):
    """A function's value, and the cotangents of its arguments, by reverse mode."""

    def __init__(self, function: Any, plan: Plan | None, engine: EngineName) -> None:
        super().__init__(engine, plan)
        if function_key(function) is None or innermost(function) is None:
            raise GradientTypeError(no_function(function))
        self._function = function

    def _source(self) -> PythonFunction:
        return innermost(self._function)

    def __call__(self, primals: tuple[Any, ...], cotangent: Any) -> Any:
        """The value at primals, and their cotangents for one of the value."""
        if not primals or not all(is_differentiable(type_of(p)) for p in primals):
            raise GradientTypeError(
                "`vjp` takes a tuple of numbers, arrays and tuples of them; close over "
                "other arguments"
            )
        return self._run((*primals, Tangent(cotangent)))

    def _root(
        self, owner: Expressions, node: ast.AST, operands: list[Operand]
    ) -> Operand:
        return pullback_call(owner, node, self._function, operands)

"""Functions with one derivative along given tangents, or for given cotangents."""

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from retape._errors import GradientTypeError, PlanError
from retape.engines.vlad.python.call._callable import CompiledCallable
from retape.engines.vlad.python.call._values import Tangent, type_of
from retape.engines.vlad.python.expressions._derivative_calls import (
    pullback_call,
    pushforward_call,
)
from retape.engines.vlad.python.expressions._expressions import Expressions
from retape.engines.vlad.python.read._source import CompileError
from retape.engines.vlad.python.read._types import (
    INT,
    as_floats,
    is_differentiable,
    kind_of_type,
)
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.session._engines import EngineName
from retape.plan._base import Plan

NOT_ALIKE = (
    "`jvp` takes two tuples of numbers, arrays and tuples of them, alike: a tangent "
    "for each primal, or `None` for one by which no derivative is taken"
)


class _Directional(CompiledCallable):
    """A derivative of a function in one direction, by some arguments or by all."""

    def __init__(
        self,
        function: Any,
        wanted: tuple[int, ...] | None,
        plan: Plan | None,
        engine: EngineName,
    ) -> None:
        super().__init__(function, engine, plan)
        self._wanted = wanted

    def _by(self, count: int) -> tuple[int, ...]:
        """The arguments by which the derivative is taken, of so many."""
        return tuple(range(count)) if self._wanted is None else self._wanted

    @contextmanager
    def _ints_named(self, primals: tuple[Any, ...], remedy: str) -> Iterator[None]:
        """Say in a refusal which ints are floats because a derivative is taken."""
        try:
            yield
        except CompileError as error:
            ints = [k for k in self._by(len(primals)) if type_of(primals[k]) is INT]
            if ints:
                of = ", ".join(str(k) for k in ints)
                error.add_note(f"int given as argument {of} is a float here; {remedy}")
            raise


class Pushforward(_Directional):
    """A function and its directional derivative, by forward mode."""

    def __init__(
        self, function: Any, wanted: tuple[int, ...] | None, engine: EngineName
    ) -> None:
        super().__init__(function, wanted, None, engine)

    def __call__(self, primals: tuple[Any, ...], tangents: tuple[Any, ...]) -> Any:
        """The value at primals, and its derivative along tangents."""
        by = [primals[each] for each in self._by(len(primals))]
        types = tuple(as_floats(type_of(each)) for each in by)
        along = tuple(as_floats(type_of(each)) for each in tangents)
        if types != along or not all(is_differentiable(each) for each in types):
            raise GradientTypeError(NOT_ALIKE)
        for primal, tangent in zip(by, tangents, strict=True):
            if getattr(primal, "shape", None) != getattr(tangent, "shape", None):
                raise GradientTypeError(
                    f"a tangent of shape {tangent.shape} for a primal of shape "
                    f"{primal.shape}; make them alike"
                )
        with self._ints_named(primals, "give `None` as its tangent to keep it an int"):
            return self._run((*primals, *(Tangent(each) for each in tangents)))

    def _root(
        self, owner: Expressions, node: ast.AST, operands: list[Operand]
    ) -> Operand:
        wanted = self._by(len(operands) // 2)
        return pushforward_call(owner, node, self._function, operands, wanted)


class Pullback(_Directional):
    """A function's value, and the cotangents of its arguments, by reverse mode."""

    def __call__(self, primals: tuple[Any, ...], cotangent: Any) -> Any:
        """The value at primals, and the wanted cotangents for one of the value."""
        wanted = self._by(len(primals))
        if not wanted:
            raise GradientTypeError(
                "`vjp` needs at least one argument; name it in `argnums`"
            )
        if max(wanted) >= len(primals):
            raise PlanError(
                f"`argnums` has {max(wanted)}, and there are {len(primals)} primals, "
                "counted from 0"
            )
        for each in wanted:
            if not is_differentiable(type_of(primals[each])):
                raise GradientTypeError(
                    f"argument {each} is {kind_of_type(type_of(primals[each]))}, and "
                    "no derivative is taken with respect to that; choose others with "
                    "`argnums`"
                )
        with self._ints_named(primals, "leave it out of `argnums` to keep it an int"):
            return self._run((*primals, Tangent(cotangent)))

    def _root(
        self, owner: Expressions, node: ast.AST, operands: list[Operand]
    ) -> Operand:
        wanted = self._by(len(operands) - 1)
        return pullback_call(owner, node, self._function, operands, wanted)

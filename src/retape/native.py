"""Python functions, compiled, with derivatives in sublinear memory.

Plain Python in, native code out: loops of unknown length, recursion, closures, arrays;
`grad` of any of it, in memory that grows with the logarithm of the running time.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType, ModuleType
from typing import Any

from retape._errors import GradientTypeError
from retape.driver._report import Report
from retape.engines.vlad.language._diagnostics import RunError as RunError
from retape.engines.vlad.python.call._arguments import checked_argnums
from retape.engines.vlad.python.call._bridges import in_jax, in_torch
from retape.engines.vlad.python.call._directional import (
    NOT_ALIKE,
    Pullback,
    Pushforward,
)
from retape.engines.vlad.python.call._function import Derivative, NativeFunction
from retape.engines.vlad.python.call._remembered import remembered
from retape.engines.vlad.python.read._source import CompileError as CompileError
from retape.engines.vlad.session._engines import EngineName
from retape.plan._base import Plan
from retape.plan._constructors import budgeted

__all__ = [
    "CompileError",
    "RunError",
    "function",
    "grad",
    "jvp",
    "measure",
    "to_jax",
    "to_torch",
    "value_and_grad",
    "vjp",
]


def function(
    fun: Callable[..., Any] | str | Sequence[str] | None = None,
    *,
    engine: EngineName = "compiled",
    cache: bool = True,
) -> Any:
    """Compile a Python function to native code; also as a decorator.

    The function is read from its source when it is first called with arguments of some
    types, and compiled for them. `@retape.native` is the same. With a signature, or a
    list of them, it is compiled at once, and takes arguments of no other types; an int
    is a float where the signature says so.

    Args:
        fun: A function written with `def` or `lambda`, in the subset that
            [the documentation](../native.md) describes; or what its arguments are, and
            its value, as Numba has it: "float64(float64[:], int64)".
        engine: "compiled", or "interpreter" or "hybrid", which need no C compiler.
        cache: Whether other processes find the machine code of the function's calls.

    Returns:
        A function of the same arguments. What it returns has the types that Python
        gives it: ints, bools, floats, tuples, NumPy arrays.

    Raises:
        GradientTypeError: If `fun` is no Python function, or a signature is not read.
        CompileError: If it is not compiled as its signature says.

    Examples:
        >>> from retape import native
        >>> @native.function("float64(float64, int64)")  # doctest: +SKIP
        ... def power(x, n):
        ...     return x**n
        >>> @native.function
        ... def newton(a):
        ...     x = 1.0
        ...     while abs(x * x - a) > 1e-12:
        ...         x = 0.5 * (x + a / x)
        ...     return x
        >>> newton(2.0)  # doctest: +SKIP
        1.4142135623730951
    """
    if fun is None or isinstance(fun, str | list | tuple):
        return partial(_function, engine=engine, cache=cache, signatures=fun or ())
    return _function(fun, engine=engine, cache=cache)


def _function(
    fun: Any,
    *,
    engine: EngineName,
    cache: bool,
    signatures: str | Sequence[str] = (),
) -> NativeFunction:
    if not isinstance(fun, FunctionType):
        raise GradientTypeError(
            f"`{fun!r}` is not a Python function, as `def` and `lambda` make them"
        )
    return NativeFunction(fun, engine, signatures, cache)


def grad(
    fun: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    plan: Plan | None = None,
    memory: float | str | None = None,
    engine: EngineName = "compiled",
) -> Derivative:
    """The gradient of a function of numbers and arrays that returns one number.

    Args:
        fun: A Python function, a compiled one, or a derivative of one.
        argnums: Which arguments to differentiate by; a tuple gives a tuple.
        plan: How memory and time are traded; by default `logarithmic`, with stages of
            1,000,000 steps.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        engine: As in `function`.

    Returns:
        A function of the same arguments, which may be differentiated again, or called
        in compiled functions. With `store=` its states are kept on disk.

    Raises:
        PlanError: If `plan` and `memory` are both given, or cannot be.
    """
    plan = budgeted(plan, memory)
    return Derivative("grad", fun, argnums, plan, engine)


def value_and_grad(
    fun: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    *,
    plan: Plan | None = None,
    memory: float | str | None = None,
    engine: EngineName = "compiled",
) -> Derivative:
    """The value and the gradient, as `grad` has it.

    Raises:
        PlanError: If `plan` and `memory` are both given, or cannot be.
    """
    plan = budgeted(plan, memory)
    return Derivative("value_and_grad", fun, argnums, plan, engine)


def jvp(
    fun: Callable[..., Any],
    primals: tuple[Any, ...],
    tangents: tuple[Any, ...],
    *,
    engine: EngineName = "compiled",
) -> tuple[Any, Any]:
    """The value of a function, and its derivative along tangents, by forward mode.

    Args:
        fun: A Python function, a compiled one, or a derivative of one.
        primals: Its arguments: numbers, arrays, tuples of them.
        tangents: One for each, alike, or `None` for an argument by which no derivative
            is taken. Ints are floats if they have a tangent, and else stay ints.
        engine: As in `function`.

    Returns:
        The value, and its tangent.

    Raises:
        GradientTypeError: If primals and tangents are not alike.

    Examples:
        >>> from retape import native
        >>> def power(x, n):
        ...     y = 1.0
        ...     for _ in range(n):
        ...         y *= x
        ...     return y
        >>> native.jvp(power, (3.0, 4), (1.0, None))  # doctest: +SKIP
        (81.0, 108.0)
    """
    if len(primals) != len(tangents):
        raise GradientTypeError(NOT_ALIKE)
    wanted = tuple(k for k, each in enumerate(tangents) if each is not None)
    options = Pushforward, wanted, engine
    made = remembered(fun, options, lambda: Pushforward(fun, wanted, engine))
    return made(primals, tuple(tangents[each] for each in wanted))


def vjp(
    fun: Callable[..., Any],
    primals: tuple[Any, ...],
    cotangent: Any,
    *,
    argnums: tuple[int, ...] | None = None,
    plan: Plan | None = None,
    memory: float | str | None = None,
    engine: EngineName = "compiled",
) -> tuple[Any, tuple[Any, ...]]:
    """The value of a function, and the cotangents of its arguments, by reverse mode.

    Args:
        fun: A Python function, a compiled one, or a derivative of one.
        primals: Its arguments: numbers, arrays, tuples of them.
        cotangent: That of the value, alike.
        argnums: Which arguments to differentiate by; by default all. Ints are floats if
            they are among them, and else stay ints.
        plan: As in `grad`.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.
        engine: As in `function`.

    Returns:
        The value, and a tuple of cotangents, one for each of these arguments.

    Raises:
        GradientTypeError: If a primal has no cotangent.
        PlanError: If `argnums` names no arguments.
        CompileError: If the cotangent is not like the value.

    Examples:
        >>> from retape import native
        >>> def power(x, n):
        ...     y = 1.0
        ...     for _ in range(n):
        ...         y *= x
        ...     return y
        >>> native.vjp(power, (3.0, 4), 1.0, argnums=(0,))  # doctest: +SKIP
        (81.0, (108.0,))
    """
    plan = budgeted(plan, memory)
    wanted = None if argnums is None else _as_tuple(argnums)
    options = Pullback, wanted, plan, engine
    made = remembered(fun, options, lambda: Pullback(fun, wanted, plan, engine))
    return made(primals, cotangent)


def _as_tuple(argnums: tuple[int, ...]) -> tuple[int, ...]:
    """Numbers of arguments, if they can be, as a tuple also for one."""
    found = checked_argnums(argnums)
    return (found,) if isinstance(found, int) else found


def to_jax(
    fun: Callable[..., Any],
    shape: tuple[int, ...] = (),
    *,
    plan: Plan | None = None,
    memory: float | str | None = None,
) -> Callable[..., Any]:
    """The function on arrays of JAX: under `jit`, `vmap` and `grad`, once.

    It runs on the host, in double precision, whatever the arrays' types.

    Args:
        fun: A Python function, or a compiled one, of numbers and arrays.
        shape: The shape of its value.
        plan: As in `grad`.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.

    Returns:
        A function of arrays. Forward mode and second derivatives are refused by JAX.

    Raises:
        GradientTypeError: If `fun` is no Python function.
        PlanError: If `plan` and `memory` are both given, or cannot be.
    """
    plan = budgeted(plan, memory)
    return in_jax(_as_native(fun), shape, plan)


def to_torch(
    fun: Callable[..., Any],
    *,
    plan: Plan | None = None,
    memory: float | str | None = None,
) -> Callable[..., Any]:
    """The function on tensors of PyTorch, with its derivative for `backward()`.

    It runs on the host, in double precision, whatever the tensors' types.

    Args:
        fun: A Python function, or a compiled one, of numbers and arrays.
        plan: As in `grad`.
        memory: Bytes, or a text such as "1 GB": instead of `plan`, for
            `plan=retape.within(memory)`.

    Returns:
        A function of tensors. Second derivatives are refused by PyTorch.

    Raises:
        GradientTypeError: If `fun` is no Python function.
        PlanError: If `plan` and `memory` are both given, or cannot be.
    """
    plan = budgeted(plan, memory)
    return in_torch(_as_native(fun), plan)


def _as_native(fun: Any) -> NativeFunction:
    return fun if isinstance(fun, NativeFunction) else function(fun)


@dataclass(frozen=True, slots=True)
class Measured:
    """The result of `measure`.

    Attributes:
        value: What the derivative returned.
        reports: What each sweep did, the outermost ones in order.
    """

    value: Any
    reports: tuple[Report, ...]


def measure(derivative: Derivative, *args: Any) -> Measured:
    """Call a derivative, and report what its sweeps did.

    Args:
        derivative: What `grad` or `value_and_grad` returned.
        args: Its arguments.
    """
    value, reports = derivative.measured(*args)
    return Measured(value, tuple(reports))


class _CallableModule(ModuleType):
    """So that `@retape.native` is `@retape.native.function`."""

    def __call__(self, *args: Any, **options: Any) -> Any:
        return function(*args, **options)


sys.modules[__name__].__class__ = _CallableModule

"""Options of a gradient, with the checks of `jax.grad`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from retape._errors import GradientTypeError
from retape.engines.jaxpr.api._trace import is_array
from retape.engines.jaxpr.sizing._choose_settings import default_plan
from retape.plan._base import Plan
from retape.plan._constructors import budgeted
from retape.plan._options import check_loops
from retape.plan._support import JAX, JAX_HOSTED, check_no_plan
from retape.plan._support import check_plan as obeyed


@dataclass(frozen=True, slots=True)
class GradientOptions:
    """The options of a gradient."""

    argnums: int | Sequence[int]
    has_aux: bool
    holomorphic: bool
    allow_int: bool

    def __post_init__(self) -> None:
        for name in self.__slots__:
            check_no_plan(name, getattr(self, name))

    def numbers(self, given: int) -> list[int]:
        """The positions of the arguments differentiated by, none negative."""
        argnums = self.listed()
        for number in argnums:
            if not -given <= number < given:
                raise GradientTypeError(
                    f"`argnums={self.argnums!r}` asks for positional argument "
                    f"{number}, and the call has {given}. Pass the arguments that you "
                    "differentiate by positionally."
                )
        return [n % given for n in argnums]

    @property
    def alone(self) -> bool:
        """Tell whether one number was asked for, so that one gradient is returned."""
        return hasattr(self.argnums, "__index__")

    def listed(self) -> list[int]:
        """The numbers asked for, as integers."""
        asked: Any = [self.argnums] if self.alone else self.argnums
        try:
            return [operator.index(number) for number in asked]
        except TypeError as error:
            raise GradientTypeError(
                f"`argnums={self.argnums!r}` is neither the number of a positional "
                "argument nor a sequence of such numbers. Pass an integer or a tuple "
                "of integers."
            ) from error

    def split(self, out: Any) -> tuple[Any, Any]:
        """A function's result as value and auxiliary part."""
        if not self.has_aux:
            return out, None
        if not isinstance(out, tuple) or len(out) != 2:
            raise GradientTypeError(
                f"the function returned `{out!r}`, and `has_aux=True` means a pair: "
                "the scalar, and arrays. Return a pair, or leave `has_aux` out."
            )
        check_auxiliary(out[1])
        return out[0], out[1]

    def join(self, value: Any, aux: Any, gradient: Any) -> Any:
        """The result of `value_and_grad`, in the user's shape."""
        return ((value, aux) if self.has_aux else value), gradient

    def check_arguments(self, args: tuple[Any, ...]) -> None:
        """Refuse arguments of types that have no gradient."""
        for number in self.numbers(len(args)):
            for path, leaf in jax.tree_util.tree_leaves_with_path(args[number]):
                where = f"args[{number}]{jax.tree_util.keystr(path)}"
                self.check_leaf(where, leaf)

    def check_leaf(self, where: str, leaf: Any) -> None:
        try:
            dtype = jax.dtypes.result_type(leaf)
        except TypeError as error:
            raise GradientTypeError(
                f"`{where}={leaf!r}` is not an array or a number, so there is no "
                "gradient with respect to it. Leave it out of `argnums`. For the "
                "arrays of an Equinox module, "
                "`equinox.filter_grad(retape.jax.checkpointed(fun))` takes it."
            ) from error
        if self.holomorphic and not jax.dtypes.issubdtype(dtype, np.complexfloating):
            raise GradientTypeError(
                f"`{where}` is of type `{dtype}`, and `holomorphic=True` "
                "differentiates with respect to complex numbers. Convert it, or leave "
                "`holomorphic` out."
            )
        if not jax.dtypes.issubdtype(dtype, np.inexact) and not self.allow_int:
            raise GradientTypeError(
                f"`{where}` is of type `{dtype}`, and a gradient is taken with respect "
                "to real numbers. Convert it to a floating type, leave it out of "
                "`argnums`, or pass `allow_int=True` to get a `float0` in its place."
            )

    def check_value(self, value: Any) -> None:
        """Refuse a result that is not one real number."""
        if not _is_leaf(value) or not _is_number_or_array(value):
            raise GradientTypeError(
                f"the function returned `{value!r}`, and a gradient is that of one "
                "number. Return a scalar"
                + ("." if self.has_aux else ", or pass `has_aux=True` for a pair.")
            )
        aval = jax.typeof(value)
        if aval.shape != ():
            raise GradientTypeError(
                f"the function returned an array of shape `{aval.shape}`, and a "
                "gradient is that of one number. Sum it up, or use `retape.jax.vjp` "
                "with a cotangent of that shape."
            )
        self.check_value_type(aval.dtype)

    def check_value_type(self, dtype: Any) -> None:
        if self.holomorphic:
            if not jax.dtypes.issubdtype(dtype, np.complexfloating):
                raise GradientTypeError(
                    f"the function returned a `{dtype}`, and `holomorphic=True` means "
                    "a complex result. Leave `holomorphic` out."
                )
        elif jax.dtypes.issubdtype(dtype, np.complexfloating):
            raise GradientTypeError(
                f"the function returned a complex number (`{dtype}`), and a gradient "
                "is that of a real one. Take its real part, or pass "
                "`holomorphic=True` if the function is holomorphic."
            )
        elif not jax.dtypes.issubdtype(dtype, np.floating):
            raise GradientTypeError(
                f"the function returned a `{dtype}`, which has no gradient. Return a "
                "number of a floating type."
            )


def check_auxiliary(aux: Any) -> None:
    """Refuse what cannot leave a compiled function beside its value."""
    for path, leaf in jax.tree_util.tree_leaves_with_path(aux):
        if not is_array(leaf, numbers=True):
            where = f"aux{jax.tree_util.keystr(path)}"
            raise GradientTypeError(
                f"`{where}={leaf!r}` is of type `{type(leaf).__name__}`, and what a "
                "function returns beside its value are arrays and numbers: it is "
                "compiled. Return those, and keep the rest outside."
            )


def check_plan(
    plan: Any,
    loops: Any = None,
    *,
    memory: float | str | None = None,
    hosted: bool = False,
) -> Plan | None:
    """The plan of a gradient; `None` for the default one.

    Args:
        plan: The user's plan.
        memory: Bytes that were passed instead.
        loops: The form of loops that is asked for, if any.
        hosted: Whether the host steers the run, action by action.

    Raises:
        PlanError: If it is no plan, or one that a compiled gradient cannot obey; if
            there is no such form of loops.
    """
    plan = budgeted(plan, memory)
    plan = None if plan is None else obeyed(plan, JAX_HOSTED if hosted else JAX)
    if check_loops(loops) is None:
        return plan
    return replace(plan or default_plan(), loops=check_loops(loops))


def check_callable(fun: Any) -> None:
    """Refuse what is no function."""
    check_no_plan("fun", fun)
    if not callable(fun):
        raise GradientTypeError(
            f"`fun={fun!r}` is not a function. Pass the function itself."
        )


def no_gradient(leaf: Any) -> np.ndarray:
    """The gradient by an integer, as JAX returns it."""
    return np.zeros(jnp.shape(leaf), jax.dtypes.float0)


def _is_leaf(value: Any) -> bool:
    return jax.tree_util.treedef_is_leaf(jax.tree_util.tree_structure(value))


def _is_number_or_array(value: Any) -> bool:
    return hasattr(value, "shape") or isinstance(value, (bool, int, float, complex))

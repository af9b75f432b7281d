"""Compiled functions as functions of JAX and of PyTorch, which differentiate them.

Both call back to the host: JAX through `pure_callback`, with a rule for reverse mode,
PyTorch through an `autograd.Function`. The work is done in double precision.
"""

from collections.abc import Callable
from typing import Any

from retape._errors import GradientTypeError
from retape.engines.vlad.python.call._directional import Pullback
from retape.engines.vlad.python.call._function import NativeFunction
from retape.plan._base import Plan


def in_jax(
    fun: NativeFunction, shape: tuple[int, ...], plan: Plan | None
) -> Callable[..., Any]:
    """The function on arrays of JAX, with a rule for reverse mode."""
    import jax
    import numpy as np

    pullback = Pullback(fun, None, plan, "compiled")

    def call(*args: Any) -> Any:
        out = jax.ShapeDtypeStruct(shape, jax.numpy.result_type(*args))

        def host(*given: Any) -> Any:
            return _of_shape(fun(*map(_from_host, given)), shape, out.dtype)

        return jax.pure_callback(host, out, *args, vmap_method="sequential")

    def backward(args: tuple[Any, ...], cotangent: Any) -> Any:
        out = tuple(jax.ShapeDtypeStruct(a.shape, a.dtype) for a in args)

        def host(given: Any, c: Any) -> Any:
            _, found = pullback(tuple(map(_from_host, given)), _from_host(c))
            return tuple(
                np.asarray(each, dtype=a.dtype)
                for each, a in zip(found, out, strict=True)
            )

        return jax.pure_callback(host, out, args, cotangent, vmap_method="sequential")

    rule = jax.custom_vjp(call)
    rule.defvjp(lambda *args: (call(*args), args), backward)

    def of_arrays(*args: Any) -> Any:
        return rule(*(jax.numpy.asarray(arg, dtype=_dtype(jax, arg)) for arg in args))

    return of_arrays


def _dtype(jax: Any, arg: Any) -> Any:
    """The type of an argument, if it is a real one, else the default one."""
    dtype = jax.numpy.result_type(arg)
    return dtype if dtype.kind == "f" else jax.numpy.result_type(float)


def _of_shape(value: Any, shape: tuple[int, ...], dtype: Any) -> Any:
    import numpy as np

    if np.shape(value) != shape:
        raise GradientTypeError(
            f"the function returns a value of shape {np.shape(value)}, not {shape}; "
            "pass the right `shape` to `to_jax`"
        )
    return np.asarray(value, dtype=dtype)


def _from_host(array: Any) -> Any:
    """An array of the host as an argument: one without dimensions is a number."""
    import numpy as np

    array = np.asarray(array, dtype=np.float64)
    return array if array.ndim else float(array)


def in_torch(fun: NativeFunction, plan: Plan | None) -> Callable[..., Any]:
    """The function on tensors of PyTorch, with a rule for reverse mode."""
    import torch

    pullback = Pullback(fun, None, plan, "compiled")

    class Bridge(torch.autograd.Function):
        """The call and its derivative."""

        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            ctx.save_for_backward(*args)
            value = fun(*(_from_host(each.detach().cpu()) for each in args))
            return torch.as_tensor(value, dtype=args[0].dtype, device=args[0].device)

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(  # pyright: ignore[reportIncompatibleMethodOverride]
            ctx: Any, *grad_outputs: Any
        ) -> Any:
            args = ctx.saved_tensors
            (c,) = grad_outputs
            given = tuple(_from_host(each.detach().cpu()) for each in args)
            _, found = pullback(given, _from_host(c.detach().cpu()))
            return tuple(
                torch.as_tensor(each, dtype=a.dtype, device=a.device)
                for each, a in zip(found, args, strict=True)
            )

    def of_tensors(*args: Any) -> Any:
        return Bridge.apply(*(_tensor(torch, arg) for arg in args))

    return of_tensors


def _tensor(torch: Any, arg: Any) -> Any:
    if isinstance(arg, torch.Tensor) and arg.is_floating_point():
        return arg
    return torch.as_tensor(arg, dtype=torch.float64)

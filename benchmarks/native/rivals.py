"""The functions elsewhere: compiled by Numba, in JAX and in PyTorch.

    python -m benchmarks.native.rivals NAME N

prints one line of JSON about the gradient in PyTorch of the function at that length:
the value, the seconds of the processor, and by how many bytes the process grew, which
are the tensors and the graph. Where the function is numbers and control flow it is the
same function, with PyTorch's operators; two are written with operations on whole
arrays, as one would. JAX refuses the gradient of a loop whose length only running
tells, so it has those whose number of steps is known.
"""

import ast
import inspect
import json
import math
import resource
import sys
import time
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.native import functions as ten

Call = Callable[..., Any]


def numba_version(f: Call) -> Call | None:
    """The function and those that it calls, compiled by Numba, if that is installed."""
    try:
        import numba  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    names = dict(vars(ten))
    for name in ("gravity", "simpson"):
        names[name] = numba.njit(getattr(ten, name))
    copy = types.FunctionType(f.__code__, names, f.__name__, f.__defaults__)
    return numba.njit(copy)


# Whole arrays: `loop(step, state, n)`, and the package that has `sqrt` and so on. -----


def n_body(xp: Any, loop: Call, p: Any, v: Any, mass: Any, steps: int) -> Any:
    others = 1.0 - xp.eye(len(mass))

    def gravity(p: Any) -> Any:
        d = p[None, :, :] - p[:, None, :]
        r2 = (d * d).sum(-1) + 0.01
        pull = mass[None, :] / (r2 * xp.sqrt(r2)) * others
        return (pull[:, :, None] * d).sum(1)

    def step(state: Any, _: Any) -> Any:
        p = state[0] + 0.001 * state[1]
        return p, state[1] + 0.001 * gravity(p)

    p, _ = loop(step, (p, v + 0.5 * 0.001 * gravity(p)), steps)
    return p[0, 0] ** 2 + p[0, 1] ** 2


def pendulum(xp: Any, loop: Call, angle: Any, length: Any, steps: int) -> Any:
    def step(state: Any, _: Any) -> Any:
        a, s = state
        s = s - 0.001 * (9.81 / length * xp.sin(a) + 0.1 * s)
        return a + 0.001 * s, s

    return loop(step, (angle, 0.0 * angle), steps)[0]


def rnn_cell(xp: Any, loop: Call, w: Any, u: Any, h: Any, steps: int) -> Any:
    def step(h: Any, t: Any) -> Any:
        return xp.tanh(w @ h + xp.sin(0.1 * t) * u)

    return loop(step, h, steps).sum()


IN_JAX = {ten.n_body: n_body, ten.pendulum: pendulum, ten.rnn_cell: rnn_cell}
IN_TORCH = {ten.n_body: n_body, ten.rnn_cell: rnn_cell}


def jax_gradient(f: Call, args: tuple[Any, ...]) -> tuple[Call, int] | None:
    """The gradient in JAX, jitted, and the bytes that it takes, if JAX can."""
    import jax

    jax.config.update("jax_enable_x64", True)
    if f not in IN_JAX:
        return None

    def scanned(step: Call, state: Any, steps: int) -> Any:
        over = jax.numpy.arange(steps)
        return jax.lax.scan(lambda s, t: (step(s, t), None), state, over)[0]

    steps, inputs = args[-1], args[:-1]
    value = lambda *x: IN_JAX[f](jax.numpy, scanned, *x, steps)  # noqa: E731
    gradient = jax.jit(jax.grad(value, (0, 1)))
    given = [jax.numpy.asarray(each, dtype="float64") for each in inputs]
    compiled = gradient.lower(*given).compile()
    took: Any = compiled.memory_analysis()
    return (lambda *_: jax.block_until_ready(compiled(*given))), took.temp_size_in_bytes


# PyTorch ------------------------------------------------------------------------------


class _Either:
    """`math` for floats, and PyTorch's function of the same name for tensors."""

    def __getattr__(self, name: str) -> Any:
        import torch

        plain, ours = getattr(math, name), getattr(torch, name, None)
        return lambda x: ours(x) if isinstance(x, torch.Tensor) and ours else plain(x)


class _Arrays:
    """What of NumPy the functions call."""

    def full(self, shape: tuple[int, ...], value: float) -> Any:
        import torch

        return torch.full(shape, value, dtype=torch.float64)

    def eye(self, n: int) -> Any:
        import torch

        return torch.eye(n, dtype=torch.float64)

    def __getattr__(self, name: str) -> Any:
        return getattr(_Either(), name)


class _NewValues(ast.NodeTransformer):
    """`x += y` as `x = x + y`: of a tensor it would change what the graph keeps."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.Assign:
        read = ast.parse(ast.unparse(node.target), mode="eval").body
        return ast.Assign([node.target], ast.BinOp(read, node.op, node.value))


def in_torch(f: Call) -> Call:
    """The function, with PyTorch in the place of `math` and NumPy."""
    if f in IN_TORCH:

        def loop(step: Call, state: Any, steps: int) -> Any:
            for t in range(steps):
                state = step(state, t)
            return state

        return lambda *args: IN_TORCH[f](_Arrays(), loop, *args)
    names = {**vars(ten), "math": _Either(), "np": _Arrays()}
    for each in (ten.simpson, f):
        tree = _NewValues().visit(ast.parse(inspect.getsource(each)))
        exec(compile(ast.fix_missing_locations(tree), ten.__file__, "exec"), names)
    return names[f.__name__]


def torch_gradient(
    f: Call, args: tuple[Any, ...], by: tuple[int, ...]
) -> dict[str, Any]:
    """A gradient in PyTorch: its value, seconds and bytes."""
    import torch

    given = list(args)
    for index, arg in enumerate(args):
        if isinstance(arg, np.ndarray) or index in by:
            given[index] = torch.tensor(arg, dtype=torch.float64)
    for index in by:
        given[index].requires_grad_()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    value = in_torch(f)(*given)
    value.backward()
    seconds = time.process_time() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"value": value.item(), "seconds": seconds, "bytes": grown * 1024}


def main(name: str, n: str) -> None:
    """Measure the function that is named."""
    import torch
    from benchmarks.native.__main__ import ROWS

    torch.set_num_threads(1)
    f, arguments, _, by = next(row for row in ROWS if row[0].__name__ == name)
    torch_gradient(f, arguments(1), by)  # loaded
    print(json.dumps(torch_gradient(f, arguments(int(n)), by)))


if __name__ == "__main__":
    main(*sys.argv[1:3])

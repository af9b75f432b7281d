"""The ten functions in PyTorch: one gradient, in a process of its own.

    python -m benchmarks.native.in_torch [NAME N]

Prints one line of JSON: the value, the gradient, the seconds of the processor, and by
how many bytes the process grew, which are the tensors and the graph. Where the function
is numbers and control flow it is the same function, with PyTorch's operators; three are
written with operations on whole arrays, as one would.
"""

import ast
import inspect
import json
import math
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from benchmarks.native import functions as ten


class _Either:
    """`math` for floats, and PyTorch's function of the same name for tensors."""

    def __getattr__(self, name: str) -> Any:
        plain, ours = getattr(math, name), getattr(torch, name, None)
        return lambda x: ours(x) if isinstance(x, torch.Tensor) and ours else plain(x)


class _Arrays:
    """What of NumPy the ten functions call."""

    @staticmethod
    def full(shape: tuple[int, ...], value: float) -> torch.Tensor:
        return torch.full(shape, value, dtype=torch.float64)


class _NewValues(ast.NodeTransformer):
    """`x += y` as `x = x + y`: of a tensor it would change what the graph keeps."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.Assign:
        read = ast.parse(ast.unparse(node.target), mode="eval").body
        return ast.Assign([node.target], ast.BinOp(read, node.op, node.value))


def _same(f: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself, with PyTorch in the place of `math` and NumPy."""
    names = {**vars(ten), "math": _Either(), "np": _Arrays()}
    for each in (ten.simpson, f):
        tree = _NewValues().visit(ast.parse(inspect.getsource(each)))
        exec(compile(ast.fix_missing_locations(tree), ten.__file__, "exec"), names)
    return names[f.__name__]


def n_body(p: Any, v: Any, mass: Any, steps: int) -> Any:
    def gravity(p: Any) -> Any:
        d = p[None, :, :] - p[:, None, :]
        r2 = (d * d).sum(-1) + 0.01
        pull = mass[None, :] / (r2 * r2.sqrt()) * others
        return (pull[:, :, None] * d).sum(1)

    others = 1.0 - torch.eye(len(mass), dtype=torch.float64)
    v = v + 0.5 * 0.001 * gravity(p)
    for _ in range(steps):
        p = p + 0.001 * v
        v = v + 0.001 * gravity(p)
    return p[0, 0] ** 2 + p[0, 1] ** 2


def adaptive_grid(x: Any, outer: int, phi: float) -> Any:
    n = len(x)
    for i in range(1, outer + 1):
        r = (1013.0 * math.floor(3.0**phi) * i) % outer
        e = math.floor(math.log(outer) / math.log(2.0)) - math.floor(
            math.log(1.0 + r) / math.log(2.0)
        )
        for _ in range(2**e if e >= 0 else 0):
            y = (x * x).sum().sqrt()
            for first, theta in ((0, 1.2 * y), (1, 1.4 * y)):
                c, s = theta.cos(), theta.sin()
                end = first + (n - first) // 2 * 2
                a, b = x[first:end:2], x[first + 1 : end : 2]
                turned = torch.stack((c * a - s * b, s * a + c * b), 1).reshape(-1)
                x = torch.cat((x[:first], turned, x[end:]))
    return (x * x).sum() / 2.0


def rnn_cell(w: Any, u: Any, h: Any, steps: int) -> Any:
    for t in range(steps):
        h = torch.tanh(w @ h + math.sin(0.1 * t) * u)
    return h.sum()


WHOLE = {ten.n_body: n_body, ten.adaptive_grid: adaptive_grid, ten.rnn_cell: rnn_cell}


def in_torch(
    f: Callable[..., Any], args: tuple[Any, ...], by: tuple[int, ...]
) -> dict[str, Any]:
    """A gradient: its value, seconds and bytes."""
    made = WHOLE.get(f) or _same(f)
    given = list(args)
    for index, arg in enumerate(args):
        if isinstance(arg, np.ndarray) or index in by:
            given[index] = torch.tensor(arg, dtype=torch.float64)
    inputs = [given[index].requires_grad_() for index in by]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    began = time.process_time()
    value = made(*given)
    value.backward()
    seconds = time.process_time() - began
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    gradient = [np.ravel(each.grad).tolist() for each in inputs]
    found = {"value": value.item(), "gradient": gradient}
    return {**found, "seconds": seconds, "bytes": grown * 1024}


def main() -> None:
    """Measure the function that is named."""
    from benchmarks.native.__main__ import ROWS

    name, n = sys.argv[1:3] or ["newton", "1"]
    torch.set_num_threads(1)
    f, arguments, _, by = next(row for row in ROWS if row[0].__name__ == name)
    small, first = ten.SMALL[f][0], arguments(1)
    in_torch(f, small if f is not ten.newton else first, by)  # loaded
    print(json.dumps(in_torch(f, arguments(int(n)), by)))


if __name__ == "__main__":
    main()

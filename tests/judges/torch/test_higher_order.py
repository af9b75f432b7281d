"""Operators that are given functions: what these read gets its gradient, or is refused.

PyTorch compiles such an operator where it is called and so finds what its function
reads. In a recording the function runs as it is, below autograd.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch._higher_order_ops import (  # noqa: E402
    cond,
    scan,
    while_loop,
)
from torch._higher_order_ops import map as over_rows  # noqa: E402

import retape  # noqa: E402
import retape.torch  # noqa: E402
from retape.torch import recompute  # noqa: E402

Function = Callable[[Any], Any]
X = torch.linspace(-1, 1, 15).view(5, 3)
ZEROS = torch.zeros(3)


def chain(body: Function, start: Any, rows: Any) -> Any:
    """What `scan` computes, by a loop."""
    found = []
    for row in rows:
        start, out = body(start, row)
        found.append(out)
    return torch.stack(found)


def adding(f: Function) -> Callable[[Any, Any], Any]:
    return lambda carry, row: ((n := f(carry + row)).clone(), n * 2)


def passing(f: Function) -> Callable[[Any, Any], Any]:
    return lambda carry, row: (carry.clone(), f(row))


def turns(f: Function, x: Any) -> Any:
    more = lambda i, y: i < 2  # noqa: E731
    return while_loop(more, lambda i, y: (i + 1, f(y)), (torch.tensor(0), x))[1]


def branch(f: Function, x: Any) -> Any:
    return cond(torch.tensor(True), lambda y: (f(y),), lambda y: (y * 2,), (x,))[0]


# By name: the operator, and the same without it.
OPERATORS: dict[str, tuple[Callable[[Function, Any], Any], ...]] = {
    "scan": (
        lambda f, x: scan(adding(f), x[0] * 0, x)[1],
        lambda f, x: chain(adding(f), x[0] * 0, x),
    ),
    "scan without carry": (
        lambda f, x: scan(passing(f), torch.zeros(3), x)[1],
        lambda f, x: chain(passing(f), torch.zeros(3), x),
    ),
    "map": (over_rows, lambda f, x: torch.stack([f(row) for row in x])),
    "cond": (branch, lambda f, x: f(x)),
    "while_loop": (turns, lambda f, x: f(f(x))),
    "scan of a constant in cond": (
        lambda f, x: branch(lambda y: scan(passing(f), ZEROS, y)[1], x),
        lambda f, x: chain(passing(f), ZEROS, x),
    ),
    "scan in cond": (
        lambda f, x: branch(lambda y: scan(passing(f), torch.zeros(3), y)[1], x),
        lambda f, x: chain(passing(f), torch.zeros(3), x),
    ),
}


# What the function reads beside what it is given, made of a parameter.
READS: dict[str, Callable[[Any], Function]] = {
    "a parameter": lambda w: lambda y: (w * y).tanh(),
    "a result": lambda w: (lambda v: lambda y: (v * y).tanh())(w * 2),
    "a part of another": lambda w: partial(lambda v, y: (v * y).tanh(), w),
    "nothing": lambda w: torch.tanh,
}
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script")
FACES: dict[str, Callable[[Callable[[], Any]], Any]] = {
    "memory": lambda f: recompute(memory="1MB")(f)(),
    "loop": lambda f: recompute(snapshots=2, stage=3, mode="loop")(f)(),
}


def gradients(operator: Any, reads: str, face: Any, of_input: bool) -> list[Any]:
    w = nn.Parameter(torch.tensor([0.5, 0.8, 1.1]))
    x = X.clone().requires_grad_(of_input)
    loss = face(lambda: operator(READS[reads](w), x).square().sum())
    loss = loss + 0.1 * w.sum() + 0.1 * x.sum()  # they are used elsewhere, too
    loss.backward()
    return [loss.detach(), w.grad, *([x.grad] if of_input else [])]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("of_input", [False, True])
@pytest.mark.parametrize("name", OPERATORS)
def test_right_or_refused(name: str, reads: str, of_input: bool, face: str) -> None:
    operator, plainly = OPERATORS[name]
    try:
        found = gradients(operator, reads, FACES[face], of_input)
    except retape.UnsupportedError as error:
        assert re.search("operand|mode='loop'|Write `if`|Return a tuple", str(error))
        assert (reads, face) != ("nothing", "memory") or of_input
        return
    want = gradients(plainly, reads, lambda f: f(), of_input)
    torch.testing.assert_close(found, want)

"""One simulation in the forms that programs have, and its gradient by hand."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

N = 6


def formula(x, k):
    return x + 0.1 * np.sin(x) + 0.001 * k


def slope(x):
    return 1 + 0.1 * np.cos(x)


def start():
    return np.linspace(0.2, 1.4, N)


@dataclass
class Program:
    """What is passed to `retape.adjoint`, where its array is, and its objective."""

    step: Any
    reverse_step: Any
    x0: Any
    options: dict[str, Any] = field(default_factory=dict)
    array: Any = staticmethod(lambda tree: tree)
    last: float = 1.0
    each: Any = staticmethod(lambda k: 0.0)


def by_hand(program, steps):
    """The last state, the costs and the cotangent of the start; every state is kept.

    What is differentiated is `last` times the squares of the last state, and what the
    states cost: `each(k)` times the squares of the one before step `k`.
    """
    states = [start()]
    for k in range(steps):
        states.append(formula(states[-1], k))
    cost = sum(program.each(k) * float((x * x).sum()) for k, x in enumerate(states))
    g = 2 * (program.last + program.each(steps)) * states[-1]
    for k in reversed(range(steps)):
        g = slope(states[k]) * g + 2 * program.each(k) * states[k]
    return states[-1], cost, g


def gradient(x, k, g):
    return slope(x) * g


def pure():
    return Program(formula, gradient, start(), {"seed": lambda x: 2 * x})


def in_place():
    """The argument is changed, and the cotangent, too."""

    def step(x, k):
        x[:] = formula(x, k)
        return x

    def reverse_step(x, k, g):
        g *= slope(x)
        return g

    return Program(step, reverse_step, start(), {"seed": lambda x: 2 * x})


def two_buffers():
    """States are written to two arrays in turn, and the adjoint runs the step."""
    buffers = np.empty(N), np.empty(N)

    def step(x, k):
        buffers[k % 2][:] = formula(x, k)
        return buffers[k % 2]

    def reverse_step(x, k, g):
        found = slope(x) * g
        step(x, k + 1)
        return found

    return Program(step, reverse_step, start(), {"seed": lambda x: 2 * x})


def taped():
    """The adjoint is given what `tape` kept, in one buffer each time."""
    buffer = np.empty(N)

    def tape(x, k):
        buffer[:] = slope(x)
        return formula(x, k), {"slope": buffer}

    options = {"seed": lambda x: 2 * x, "tape": tape}
    return Program(formula, lambda t, k, g: t["slope"] * g, start(), options)


def tree():
    """A dictionary of arrays, of which one is a view of the other."""

    def step(x, k):
        x["all"][:] = formula(x["all"], k)
        return {"all": x["all"], "first": x["all"][:1], "count": x["count"] + 1}

    def reverse_step(x, k, g):
        assert x["count"] == k and x["first"][0] == x["all"][0]
        return {"all": slope(x["all"]) * g["all"], "first": 0.0, "count": 0}

    def seed(x):
        return {"all": 2 * x["all"], "first": 0.0, "count": 0}

    whole = start()
    x0 = {"all": whole, "first": whole[:1], "count": 0}
    return Program(step, reverse_step, x0, {"seed": seed}, lambda tree: tree["all"])


def many_at_once():
    """An operator runs many steps at a call."""

    def forward(x, begin, end):
        for k in range(begin, end):
            x = formula(x, k)
        return x

    options = {"seed": lambda x: 2 * x, "many": forward}
    return Program(None, gradient, start(), options)


def weight(k):
    return 1 + 0.1 * k


def with_costs(program=None):
    """The objective is a sum over all states, and what a program has had."""
    found = program or Program(formula, gradient, start(), last=0.0)
    found.options["cost"] = lambda x, k: weight(k) * float((x * x).sum())
    found.options["cost_gradient"] = lambda x, k: 2 * weight(k) * x
    found.each = weight
    return found


def taped_with_costs():
    return with_costs(taped())


def many_with_costs():
    return with_costs(many_at_once())


def costs_spoilt():
    """The gradient of a cost is the state itself, which the adjoint overwrites."""

    def reverse_step(x, k, g):
        x[:] = slope(x)
        x *= g
        return x

    options = {
        "cost": lambda x, k: 0.5 * float((x * x).sum()),
        "cost_gradient": lambda x, k: x,
    }
    spoilt = Program(formula, reverse_step, start(), options, last=0.0)
    spoilt.each = lambda k: 0.5
    return spoilt


PROGRAMS = [
    *(pure, in_place, two_buffers, taped, tree, many_at_once),
    *(with_costs, taped_with_costs, many_with_costs, costs_spoilt),
]
MANY = [many_at_once, many_with_costs]

"""Find the operator at which a gradient goes wrong, in a second run of the program.

Autograd is asked to note the line of each operator, modules say which of them are
theirs, and after each operator of the backward its cotangents are looked at.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from math import inf, isfinite, nan
from typing import Any

import torch
from torch import Tensor

from retape.driver._health import Fault
from retape.engines.eager.health._first_bad_value import BadValue, FirstBadValue
from retape.engines.eager.health._graph import (
    Grads,
    is_of_leaf,
    largest,
    number,
    operators,
    sizes,
)
from retape.engines.eager.health._places import Modules, line_of, module_of
from retape.storage._trees._magnitude import described


class _Found(Exception):
    """The operator that was looked for."""

    def __init__(self, fault: Fault) -> None:
        super().__init__("an operator at fault")
        self.fault = fault


def find_value(call: Callable[[], Tensor]) -> Fault | None:
    """The operator that makes a value which is not finite; `None` if there is none."""
    with Modules() as modules, FirstBadValue(modules) as mode:
        value = call()
    if mode.found is None:
        return None
    nodes, _ = operators(value)
    return _forward(mode.found, [number(node) for node in nodes])


def _forward(found: BadValue, numbers: list[int]) -> Fault:
    made = [result.grad_fn for result in found.results if result.grad_fn is not None]
    last = number(made[0]) if made else -1
    return Fault(
        kind="forward",
        step=max(0, sum(n <= last for n in numbers) - 1),
        steps=len(numbers),
        before=nan,
        after=inf,
        operation=found.operation,
        line=found.place.line,
        text=found.place.text,
        operands=found.operands,
        variable=found.module,
    )


def find_derivative(call: Callable[[], Tensor], growth: float) -> Fault | None:
    """The operator, the first on the way back, that spoils a cotangent."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Anomaly Detection has been enabled")
        noted = torch.autograd.set_detect_anomaly(True, check_nan=False)
    with noted, Modules():
        value = call()
    nodes, leaves = operators(value)
    search = _Search(growth, len(nodes))
    for step, node in enumerate(nodes):
        node.register_hook(search.hook(step, node))
    try:
        torch.autograd.grad(value, leaves, allow_unused=True)
    except _Found as found:
        return found.fault
    return None


class _Search:
    """What is allowed on the way back."""

    def __init__(self, growth: float, steps: int) -> None:
        self.growth, self.steps, self.first = growth, steps, 0.0

    def hook(self, step: int, node: Any) -> Callable[[Any, Any], None]:
        """What is done after the derivative of an operator was taken."""
        # A gradient of a leaf is a sum over all places where it is read.
        inner = [not is_of_leaf(before) for before, _ in node.next_functions]

        def look(made: Grads, given: Grads) -> None:
            before, after = largest(sizes(given)), largest(sizes(made))
            self.first = self.first or before
            passed = largest(
                sizes(g for g, kept in zip(made, inner, strict=False) if kept)
            )
            if not isfinite(after) or passed > self.growth * self.first:
                fault = _reverse(step, self.steps, node, before, after, given)
                raise _Found(fault)

        return look


def _reverse(
    step: int, steps: int, node: Any, before: float, after: float, given: Grads
) -> Fault:
    place = line_of(node)
    return Fault(
        kind="growth" if isfinite(after) else "reverse",
        step=step,
        steps=steps,
        before=before,
        after=after,
        operation=node.name(),
        line=place.line,
        text=place.text,
        operands=_operands(node, given),
        variable=module_of(node),
    )


def _operands(node: Any, given: Grads) -> str:
    """What the operator saved for its derivative, and what came back to it."""
    said = []
    for name in dir(node):
        if name.startswith("_saved_"):
            # `torch.utils.checkpoint` gives a tensor once, and it had it.
            with suppress(RuntimeError):
                saved: Any = getattr(node, name)
                if isinstance(saved, Tensor) and saved.layout is torch.strided:
                    said.append(f"{name[7:]}: {described(saved)}")
    cotangents = [g for g in given if g is not None and g.layout is torch.strided]
    return "; ".join([*said, f"cotangent: {described(tuple(cotangents))}"])

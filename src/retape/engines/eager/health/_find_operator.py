"""Find the operator at which a gradient goes wrong, in a second run of the program.

Autograd is asked to note the line of each operator. What is not finite in the forward
is followed to the operator that it came of; on the way back the cotangents are looked
at after each operator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from math import inf, isfinite, nan
from traceback import format_stack
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_leaves

from retape.driver._health import Fault
from retape.engines.eager._torch_compile import (
    OperatorWatch,
    compiled_code_runs_eagerly,
)
from retape.engines.eager.health._graph import (
    Grads,
    Modules,
    is_of_leaf,
    largest,
    made_so_far,
    number,
    operators,
    program_line,
    sizes,
)
from retape.storage._trees._magnitude import described

_ORIGIN = "_retape_not_finite"
"""Hung on the storage of what is not finite: the fault, or `None` if it is meant."""


class Origins(OperatorWatch):
    """Follows what is not finite to the operator that it came of.

    Infinity may be meant, as in a mask: so is what the program writes itself, or is
    given. NaN that comes of it, a softmax of nothing but -inf, is found all the same.

    Args:
        modules: That knows which module runs.
    """

    def __init__(self, modules: Modules) -> None:
        super().__init__()
        self._modules = modules

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        given = _numbers((args, kwargs))
        bad = [tensor for tensor in given if not _is_finite(tensor)]
        undefined = any(map(_is_nan, bad))
        origin = next(filter(None, map(origin_of, bad)), None)
        result = func(*args, **(kwargs or {}))
        made = [tensor for tensor in _numbers(result) if not _is_finite(tensor)]
        if made and given:
            meant = bool(bad) or _writes_infinity(args)
            undefined = not undefined and any(map(_is_nan, made))
            if origin is None and (undefined or not meant):
                # In place, the operands are what was made of them.
                kept = [t for t in given if all(t is not m for m in _numbers(result))]
                origin = self._origin(func, kept)
            for tensor in made:
                setattr(tensor.untyped_storage(), _ORIGIN, origin)
        return result

    def _origin(self, func: Any, given: Sequence[Tensor]) -> Fault:
        place = program_line(format_stack())
        return Fault(
            kind="forward",
            step=made_so_far(),  # its own node included; how many lead to the loss
            steps=0,  # shows when the program is through
            before=nan,
            after=inf,
            operation=str(func).removeprefix("aten."),
            line=place.line,
            text=place.text,
            operands=described(tuple(given)),
            variable=self._modules.current(),
        )


def origin_of(tensor: Tensor) -> Fault | None:
    """The operator that a tensor came of, if it is not finite and not meant to be."""
    return getattr(tensor.untyped_storage(), _ORIGIN, None)


def _is_finite(tensor: Tensor) -> bool:
    return bool(torch.isfinite(tensor).all())


def _is_nan(tensor: Tensor) -> bool:
    return bool(torch.isnan(tensor).any())


def _writes_infinity(args: Any) -> bool:
    return any(isinstance(a, float) and abs(a) == inf for a in tree_leaves(args))


def _numbers(tree: Any) -> list[Tensor]:
    return [
        leaf
        for leaf in tree_leaves(tree)
        if isinstance(leaf, Tensor)
        and not isinstance(leaf, FakeTensor)  # the compiler asks, and it has no values
        and leaf.layout is torch.strided
        and (leaf.is_floating_point() or leaf.is_complex())
    ]


class _Found(Exception):
    """The operator that was looked for."""

    def __init__(self, fault: Fault) -> None:
        super().__init__("an operator at fault")
        self.fault = fault


def find(call: Callable[[], Tensor], growth: float, forward: bool) -> Fault | None:
    """The operator that spoils a gradient; `None` if there is none.

    Args:
        call: Makes the loss.
        growth: How many times larger than at the loss cotangents may become.
        forward: Whether the loss itself was not finite.
    """
    modules = Modules()
    noted = torch.autograd.set_detect_anomaly(True, check_nan=False)
    with noted, modules, ExitStack() as scope:
        if forward:
            scope.enter_context(compiled_code_runs_eagerly())
            scope.enter_context(Origins(modules))
        value = call()
    nodes, leaves = operators(value)
    origin = None if isfinite(value.item()) else origin_of(value)
    if origin is not None:
        step = sum(number(node) < origin.step for node in nodes) - 1
        return replace(origin, step=max(0, step), steps=len(nodes))

    def looking(step: int, node: Any) -> Callable[[Grads, Grads], None]:
        # A gradient of a leaf is a sum over all places where it is read.
        inner = [not is_of_leaf(before) for before, _ in node.next_functions]

        def look(made: Grads, given: Grads) -> None:
            after = largest(sizes(made))
            passed = (g for g, kept in zip(made, inner, strict=False) if kept)
            # The cotangent of the loss is 1.
            if isfinite(after) and largest(sizes(passed)) <= growth:
                return
            place = program_line(node.metadata["traceback_"])
            raise _Found(
                Fault(
                    kind="growth" if isfinite(after) else "reverse",
                    step=step,
                    steps=len(nodes),
                    before=largest(sizes(given)),
                    after=after,
                    operation=node.name(),
                    line=place.line,
                    text=place.text,
                    operands=_operands(node, given),
                    variable=modules.around(number(node)),
                )
            )

        return look

    for step, node in enumerate(nodes):
        node.register_hook(looking(step, node))
    try:
        torch.autograd.grad(value, leaves, allow_unused=True)
    except _Found as found:
        return found.fault
    return None


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

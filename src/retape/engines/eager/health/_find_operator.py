"""Find the operator at which a gradient goes wrong, in a second run of the program.

Forwards every operator's results are looked at. For the way back autograd is asked to
note the line of each operator, modules say which of them are theirs, and after each
operator of the backward its cotangents are looked at.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from math import inf, isfinite, nan
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from retape.driver._health import Fault
from retape.engines.eager.health._graph import (
    Grads,
    Line,
    Modules,
    calling_line,
    is_of_leaf,
    largest,
    line_of,
    module_of,
    number,
    operators,
    sizes,
)
from retape.storage._trees._magnitude import described


class BadValue(NamedTuple):
    """The operator that made a value which is not finite.

    Attributes:
        operation: Its name.
        place: Where the program calls it.
        module: That it is in.
        operands: Types and ranges of what it was given.
        results: What is not finite, and the result before it. Which of them have a
            derivative shows when the program is through.
    """

    operation: str
    place: Line
    module: str
    operands: str
    results: list[Tensor]


class FirstBadValue(TorchDispatchMode):
    """Looks at every operator for one that makes what is not finite.

    Infinity may be meant, as in a mask: so is what the program writes itself, or is
    given. NaN that comes of it, a softmax of nothing but -inf, is found all the same.

    Args:
        modules: That knows which module runs.
    """

    def __init__(self, modules: Modules) -> None:
        super().__init__()
        self._modules = modules
        self._latest: Tensor | None = None
        self._spoilt: BadValue | None = None
        self._undefined: BadValue | None = None

    @property
    def found(self) -> BadValue | None:
        """The operator that made NaN, or the infinity that it came of, not meant."""
        return self._undefined or self._spoilt

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        del types
        given = _numbers((args, kwargs))
        if self._undefined is not None or not given:
            return func(*args, **(kwargs or {}))
        bad = [t for t in given if not _is_finite(t)]
        undefined = any(map(_is_nan, bad))
        result = func(*args, **(kwargs or {}))
        made = _numbers(result)
        worse = [t for t in made if not _is_finite(t)]
        if worse:
            meant = _writes_infinity(args) if not bad else not any(map(_is_made, bad))
            nan = any(map(_is_nan, worse)) and not undefined
            if nan or not (bad or meant):
                self._note(str(func), given, made, nan and (meant or not bad))
            if not meant:
                for tensor in worse:
                    setattr(tensor, _MADE, True)
        self._latest = made[0] if made else self._latest
        return result

    def _note(
        self, name: str, given: list[Tensor], made: list[Tensor], final: bool
    ) -> None:
        # In place, the operands are what was made of them.
        kept = [t for t in given if all(t is not m for m in made)]
        found = BadValue(
            name.removeprefix("aten."),
            calling_line(),
            self._modules.current(),
            described(tuple(kept)),
            [m for m in (*made, self._latest) if m is not None],
        )
        self._spoilt = self._spoilt or found
        if final:
            self._undefined = found


_MADE = "_retape_not_finite"
"""Hung on a tensor that an operator made of finite ones."""


def _is_made(tensor: Tensor) -> bool:
    return hasattr(tensor, _MADE)


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
        and leaf.layout is torch.strided
        and (leaf.is_floating_point() or leaf.is_complex())
    ]


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

"""Find the first operator, forwards, whose results are not finite."""

from __future__ import annotations

from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from retape.engines.eager.health._places import Line, Modules, calling_line
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

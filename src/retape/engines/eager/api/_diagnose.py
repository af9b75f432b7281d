"""`diagnose`: where the gradient of a PyTorch program goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import isfinite
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.utils._pytree import tree_leaves

from retape._errors import DeterminismError, GradientTypeError
from retape._reads import closure_of, globals_of
from retape.driver._health import LOOKS, Health, check_growth, grows
from retape.engines.eager._limits import check_callable
from retape.engines.eager.health._find_operator import find
from retape.engines.eager.health._graph import largest, operators, sizes
from retape.engines.eager.trace._random_state import present_generators


def diagnose(
    function: Callable[..., Tensor], *args: Any, growth: float = 1e6, **kwargs: Any
) -> Health:
    """Run a forward and its backward, and name the operator that spoils the gradient.

    Nothing is added to `.grad`. A budget goes inside: `function` may have a
    `with retape.torch.recompute(...)` around what it does.

    Cotangents are looked at behind at most 32 operators, evenly spread: what grows and
    shrinks again between two of them is not seen. Only if one of them or a gradient is
    not as it should be, `function` is called again and each is looked at, with the
    random states of PyTorch and the buffers of modules as they were, while autograd
    notes the line of each operator.

    Args:
        function: From its arguments to the loss.
        *args: Its arguments.
        growth: How many times larger than at the loss cotangents may become before
            that counts as a fault.
        **kwargs: Its keyword arguments.

    Returns:
        How large cotangents are, and what is wrong, if something is: the operator, the
        line of the program that calls it, and the module that it is in.

    Raises:
        GradientTypeError: If the result is not a real number with a gradient.
        PlanError: If `growth` is not above 1, or `function` cannot be called.
        DeterminismError: If the fault is not there when `function` is called again.

    Examples:
        >>> import torch, retape.torch
        >>> x = torch.tensor([0.0, 4.0], requires_grad=True)
        >>> def loss(x):           # finite, and its derivative is not
        ...     return torch.where(x > 1, x.sqrt(), 0.0).sum()
        >>> fault = retape.torch.diagnose(loss, x).fault
        >>> fault.kind, fault.operation, fault.step, fault.steps
        ('reverse', 'SqrtBackward0', 0, 3)
    """
    check_growth(growth)
    check_callable(function, "Pass the function that makes the loss.")
    before = _Before(function, (args, kwargs))

    def call() -> Tensor:
        with torch.enable_grad():
            return _checked_loss(function(*args, **kwargs))

    value = call()
    nodes, leaves = operators(value)
    per = max(1, -(-len(nodes) // LOOKS))
    looks = [_sizes_behind(node) for node in nodes[::per]]
    del nodes  # they hold what was saved
    grads = torch.autograd.grad(value, leaves, allow_unused=True)
    norms, loss = tuple(map(largest, looks)), value.item()
    if isfinite(loss) and isfinite(largest(sizes(grads))) and not grows(norms, growth):
        return Health(norms, per, None, steps_per_look=per)
    del grads, value
    before.restore()
    fault = find(call, growth, forward=not isfinite(loss))
    if fault is None:
        raise DeterminismError(
            "A gradient was NaN, infinite or too large, and it was sound when the "
            "function was called again to find the place. Let it do the same each "
            "time: seed NumPy and Python inside of it."
        )
    return Health(norms, per, fault, steps_per_look=per)


def _sizes_behind(node: Any) -> list[Tensor]:
    """The extremes of what comes to a node, filled in by a backward."""
    found: list[Tensor] = []
    # Whether they are large is asked afterwards: nobody waits for a device.
    node.register_prehook(lambda grads: found.extend(sizes(grads)))
    return found


def _checked_loss(value: Any) -> Tensor:
    """The loss, if it is one."""
    if not isinstance(value, Tensor) or value.numel() != 1 or value.is_complex():
        kind = type(value).__name__
        shape = f" of shape {tuple(value.shape)}" if isinstance(value, Tensor) else ""
        raise GradientTypeError(
            f"`function` returned a `{kind}`{shape}, and a gradient is that of a real "
            "number. Return the loss."
        )
    if value.grad_fn is None:
        raise GradientTypeError(
            "`function` returned a number that no gradient leads back from. Let a "
            "parameter or an argument have `requires_grad=True`, and do not detach it."
        )
    return value


class _Before:
    """Random states and the buffers of modules, before a call: it can be made again.

    Args:
        function: That is called: a module, a method of one, or a function that reads
            modules by closure.
        args: Its arguments.
    """

    def __init__(self, function: Any, args: Any) -> None:
        self._states = [(each, each.get_state()) for each in present_generators()]
        self._buffers: dict[Tensor, Tensor] = {
            buffer: buffer.detach().clone()
            for module in set(_modules(function, args))
            for buffer in module.buffers()
        }

    def restore(self) -> None:
        """Put all of them back."""
        for generator, state in self._states:
            generator.set_state(state)
        with torch.no_grad():
            for buffer, value in self._buffers.items():
                buffer.copy_(value)


def _modules(function: Any, args: Any) -> Iterator[Module]:
    read = [*closure_of(function).values(), *globals_of(function).values()]
    read += [function, getattr(function, "__self__", None), *tree_leaves(args)]
    yield from (each for each in read if isinstance(each, Module))

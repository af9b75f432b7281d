"""The modules that operators belong to, noted while a program runs."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from torch.nn import Module
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)
from torch.utils._pytree import tree_leaves

from retape.engines.eager.health._graph import is_of_leaf, number

_KEY = "retape_module"


class Modules:
    """A context in which each node of autograd's graph learns its innermost module.

    When a module is done, the nodes that its results were made by, after what it was
    given, are its own, unless a module inside of it took them already.
    """

    def __init__(self) -> None:
        self._open: list[tuple[Module, int]] = []
        self._hooks = ExitStack()

    def __enter__(self) -> Modules:
        before = register_module_forward_pre_hook(self._enter_module)
        after = register_module_forward_hook(self._leave_module, always_call=True)
        self._hooks.callback(before.remove)
        self._hooks.callback(after.remove)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._hooks.close()

    def current(self) -> str:
        """The path of the innermost module that runs."""
        if not self._open:
            return ""
        root, inner = self._open[0][0], self._open[-1][0]
        path = next((name for name, m in root.named_modules() if m is inner), "")
        kind = type(inner).__name__
        return f"{path} ({kind})" if path else kind

    def _enter_module(self, module: Module, args: Any) -> None:
        nodes = (getattr(leaf, "grad_fn", None) for leaf in tree_leaves(args))
        numbers = [number(node) for node in nodes if node is not None]
        self._open.append((module, max(numbers, default=-1)))

    def _leave_module(self, module: Module, args: Any, output: Any) -> None:
        del args
        path, (_, first) = self.current(), self._open.pop()
        waiting = [getattr(leaf, "grad_fn", None) for leaf in tree_leaves(output)]
        while waiting:
            node: Any = waiting.pop()
            if node is None or is_of_leaf(node) or number(node) <= first:
                continue
            if _KEY not in node.metadata:
                node.metadata[_KEY] = path
                waiting += [before for before, _ in node.next_functions]


def module_of(node: Any) -> str:
    """The path of the module that made a node, and its class; empty if none did."""
    return node.metadata.get(_KEY, "")

"""A module's method under a budget while it trains, as trainers' callbacks ask.

What is put on an instance goes with every copy of it and computes with the weights of
the first one (an average of weights, a teacher, a saved model). So this one module has
a class of its own for a time, as `fully_shard` gives it one, on which the method is
looked up: what is copied or pickled from it is what it was before.
"""

import copyreg
import functools
import inspect
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

from retape._errors import PlanError
from retape._warn import warn
from retape.engines.eager._limits import read_bytes
from retape.engines.eager.api._recompute import Recomputation, recompute
from retape.engines.eager.trace._report import EagerReport

_NEW: Any = vars(copyreg)["__newobj__"]


class Budgeted:
    """A module whose method is passed to `call`, from now to `end`.

    It is what the module's own class for that time has under the method's name. In
    evaluation mode, and without gradients, the method is called as it is.

    Args:
        module: The module.
        name: Of its method.
        call: Is given the method with its arguments, to be called without any.
        within: Code in which all of the training runs, where nobody says that it was
            broken off: in a call from elsewhere it has ended.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        name: str,
        call: Callable[[Callable[[], Any]], Any],
        within: CodeType | None,
    ) -> None:
        self._module: torch.nn.Module | None = module
        self._name, self._call, self._within = name, call, within
        self._kind: type[torch.nn.Module] = type(module)
        self._own = module.__class__ = self._class()

    def _class(self) -> type:
        kind: Any = self._kind
        named = {key: getattr(kind, key) for key in ("__module__", "__qualname__")}

        def reduced(module: torch.nn.Module, protocol: Any) -> Any:
            return self._as_before(kind.__reduce_ex__(module, protocol))

        def copied(module: Any) -> Any:
            made = kind.__copy__(module)
            made.__class__ = kind
            return made

        body: dict[str, Any] = {**named, "__reduce_ex__": reduced, self._name: self}
        if hasattr(kind, "__copy__"):
            body["__copy__"] = copied
        return type(kind)(kind.__name__, (kind,), body)

    def _as_before(self, reduced: Any) -> Any:
        """What makes a copy of the module, as it would be made without a budget."""
        if not isinstance(reduced, tuple):
            return reduced
        make, args, *more = reduced
        args = tuple(self._kind if each is self._own else each for each in args)
        # Of this one pickle compares the class with that of the module.
        return (self._kind.__new__ if make is _NEW else make, args, *more)

    def __get__(self, module: torch.nn.Module | None, owner: type) -> Any:
        """The method: in the budget, or as it is on a copy or on the class."""
        if module is None:
            return getattr(self._kind, self._name)
        # Other libraries put methods on instances, too.
        plain = vars(module).get(self._name) or getattr(
            super(self._own, module), self._name
        )
        if module is not self._module:
            return plain

        @functools.wraps(plain)
        def method(*args: Any, **kwargs: Any) -> Any:
            if self.is_over():
                self.end()
            elif module.training and torch.is_grad_enabled():
                return self._call(functools.partial(plain, *args, **kwargs))
            return plain(*args, **kwargs)

        return method

    def __set__(self, module: torch.nn.Module, value: Any) -> None:
        vars(module)[self._name] = value

    def __delete__(self, module: torch.nn.Module) -> None:
        if vars(module).pop(self._name, None) is None:
            raise AttributeError(self._name)

    def is_over(self) -> bool:
        """Whether it has ended, or the training in which it began was broken off."""
        frame = None if self._within is None else sys._getframe()
        while frame is not None and frame.f_code is not self._within:
            frame = frame.f_back
        broken_off = self._within is not None and frame is None
        return self._module is None or broken_off

    def end(self) -> None:
        """Give the module its class back."""
        module, self._module = self._module, None
        # Else another class has been put on top.
        if module is not None and type(module) is self._own:
            module.__class__ = self._kind


class StepBudget:
    """A budget for each call of a module's method, from `begin` to `end`.

    Calls in evaluation mode, or without gradients, are left as they are.

    Args:
        memory: The budget of one call, in bytes or as text such as `"2GB"`.

    Raises:
        PlanError: If it is no budget for a whole training.
    """

    def __init__(self, memory: int | float | str) -> None:
        self.memory = _checked(memory)
        self._latest: Recomputation | None = None
        self._budgeted: Budgeted | None = None

    def begin(
        self, module: torch.nn.Module, name: str, within: CodeType | None = None
    ) -> None:
        """Run a method under `recompute`: one that makes what the backward needs.

        Args:
            module: The module.
            name: Of its method.
            within: Code in which all of the training runs, if an error ends it unsaid.
        """
        left = inspect.getattr_static(type(module), name, None)
        if isinstance(left, Budgeted):
            if left is not self._budgeted and not left.is_over():
                warn(
                    f"`{name}` of `{type(module).__name__}` was under a budget "
                    "already, from a second callback: the new budget takes its place."
                )
            left.end()
        self.end()
        self._latest = None
        self._budgeted = Budgeted(module, name, self._call, within)

    def _call(self, plain: Callable[..., Any]) -> Any:
        with recompute(memory=self.memory) as run:
            result = plain()
        self._latest = run
        return result

    @property
    def report(self) -> EagerReport | None:
        """Counts of the latest call that was differentiated; `None` before one."""
        return None if self._latest is None else self._latest.report

    def end(self) -> None:
        """Give the module its own method back, if it has not got it."""
        if self._budgeted is not None:
            self._budgeted.end()
            self._budgeted = None


def _checked(memory: object) -> int | float | str:
    """Refuse what is no budget for every step of a training."""
    if memory == "auto" or not isinstance(memory, int | float | str):
        raise PlanError(
            f"`memory={memory!r}` is not a budget for a whole training: before the "
            "first "
            "step the optimiser has no state yet, so what is left then says little. "
            'Pass bytes or a text such as `memory="12GB"`; '
            "`retape.torch.estimate(model, ...)` says what a model needs."
        )
    read_bytes(memory)  # what is no number of bytes is refused here, not in training
    return memory

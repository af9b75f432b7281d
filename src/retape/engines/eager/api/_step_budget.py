"""A module's method under a budget while it trains, as trainers' callbacks ask.

What is put on an instance goes with every copy of it and computes with the weights of
the first one (an average of weights, a teacher, a saved model). So this one module has
a class of its own for a time, as `fully_shard` gives it one: what is copied or pickled
from it is what it was before.
"""

import copyreg
import functools
import inspect
import sys
from collections.abc import Callable
from types import CodeType, MethodType
from typing import Any

import torch

from retape._warn import warn
from retape.engines.eager._errors import PlanError
from retape.engines.eager.api._recompute import Recomputation, recompute
from retape.engines.eager.trace._report import EagerReport

_NEW: Any = vars(copyreg)["__newobj__"]


class Budgeted:
    """A module whose method is passed to `call`, from now to `end`.

    In evaluation mode, and without gradients, the method is called as it is.

    Args:
        module: The module.
        name: Of its method.
        call: Is given the method with its arguments, to be called without any.

    Attributes:
        method: What takes the place of the method.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        name: str,
        call: Callable[[Callable[[], Any]], Any],
    ) -> None:
        self._module, self._name, self._call = module, name, call
        self._kind: type[torch.nn.Module] = type(module)
        # Other libraries put methods on instances, too.
        self._of_instance = vars(module).get(name)
        self.method = self._method(getattr(module, name))
        self._own = self._class()
        module.__class__ = self._own
        # The class's method stays as it is: the program may call it by the class.
        setattr(module, name, MethodType(self.method, module))

    def _method(self, plain: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(plain)
        def method(module: torch.nn.Module, /, *args: Any, **kwargs: Any) -> Any:
            if module is not self._module:  # a copy made in a way of its own
                return getattr(self._kind, self._name)(module, *args, **kwargs)
            if not (module.training and torch.is_grad_enabled()):
                return plain(*args, **kwargs)
            return self._call(functools.partial(plain, *args, **kwargs))

        # Trainers ask what it takes; as a method of the module it takes that, too.
        own, *_ = inspect.signature(method, follow_wrapped=False).parameters.values()
        takes = inspect.signature(plain)
        signature = takes.replace(parameters=[own, *takes.parameters.values()])
        vars(method)["__signature__"] = signature
        return method

    def _class(self) -> type:
        kind = self._kind
        named = {key: getattr(kind, key) for key in ("__module__", "__qualname__")}

        def reduced(module: torch.nn.Module, protocol: Any) -> Any:
            return self._as_before(kind.__reduce_ex__(module, protocol))

        body: dict[str, Any] = {**named, "__reduce_ex__": reduced}
        if hasattr(kind, "__copy__"):
            body["__copy__"] = self._copied
        make: Any = type(kind)
        return make(kind.__name__, (kind,), body)

    def _copied(self, module: Any) -> Any:
        """A copy by the class's own way, which goes by this one's class and names."""
        kind: Any = self._kind
        made = kind.__copy__(module)
        made.__class__ = kind
        vars(made).pop(self._name, None)
        if self._of_instance is not None:
            vars(made)[self._name] = self._of_instance
        return made

    def _as_before(self, reduced: Any) -> Any:
        """What makes a copy of the module, as it would be made without a budget."""
        if not isinstance(reduced, tuple):
            return reduced
        make, args, *more = reduced
        args = tuple(self._kind if each is self._own else each for each in args)
        if make is _NEW:  # pickle compares its class with that of the module
            make = self._kind.__new__
        if more and isinstance(more[0], dict):
            more[0] = {**more[0]}
            self._put_back(more[0])
        return (make, args, *more)

    def _put_back(self, attributes: dict[str, Any]) -> None:
        attributes.pop(self._name, None)
        if self._of_instance is not None:
            attributes[self._name] = self._of_instance

    def end(self) -> None:
        """Give the module its class and its method back."""
        if type(self._module) is self._own:  # else another class has been put on top
            self._module.__class__ = self._kind
        self._put_back(vars(self._module))


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
        self._within: CodeType | None = None

    def begin(
        self, module: torch.nn.Module, name: str, within: CodeType | None = None
    ) -> None:
        """Run a method under `recompute`: one that makes what the backward needs.

        Args:
            module: The module.
            name: Of its method.
            within: Code in which all of the training runs, where nobody says that it
                was broken off: in a call from elsewhere the budget has ended.
        """
        left = getattr(getattr(module, name), "budget", None)
        if isinstance(left, StepBudget):
            if left is not self and not left.is_over():
                warn(
                    f"`{name}` of `{type(module).__name__}` was under a budget "
                    "already, from a second callback: the new budget takes its place."
                )
            left.end()
        self._latest, self._within = None, within
        self._budgeted = Budgeted(module, name, self._call)
        # A later budget finds this one by it.
        vars(self._budgeted.method)["budget"] = self

    def is_over(self) -> bool:
        """Whether the training in which it began was broken off."""
        frame = None if self._within is None else sys._getframe()
        while frame is not None and frame.f_code is not self._within:
            frame = frame.f_back
        return self._within is not None and frame is None

    def _call(self, plain: Callable[..., Any]) -> Any:
        if self.is_over():
            self.end()
            return plain()
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
    # Reads it, so that what is no number of bytes is refused here and not in training.
    recompute(memory=memory)
    return memory

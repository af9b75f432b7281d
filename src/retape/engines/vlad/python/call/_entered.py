"""Compiled callables that CPython calls at once, when calls with numbers come again."""

import weakref
from collections.abc import Callable
from typing import Any

from retape.engines.vlad.python.call._callable import ROOT, CompiledCallable, Made
from retape.engines.vlad.python.call._looks import looks_of
from retape.engines.vlad.python.read._types import BOOL, FLOAT, INT, TupleType, Type
from retape.engines.vlad.session._engines import CompiledEngine, EngineName
from retape.plan._base import Plan

_ORDINARY = 20
"""Calls with numbers before one is worth an entry: it takes as long as some of them."""

_VALUES: dict[Type, str] = {FLOAT: "f", INT: "i", BOOL: "b"}

_KINDS: dict[type, str] = {float: "f", int: "i", bool: "b"}


class EnteredCallable(CompiledCallable):
    """A compiled callable whose `__call__` is made anew.

    At first that is `called`; after some calls with numbers it is a built-in function,
    which does what `called` would do, or calls it. It stands in a slot of the object,
    where Python finds it without any code of ours.
    """

    __slots__ = ("__call__",)

    def __init__(self, engine: EngineName, plan: Plan | None) -> None:
        super().__init__(engine, plan)
        self._ordinary = _ordinary(weakref.ref(self))
        self.__call__ = self._ordinary

    def begin_again(self) -> Any:
        abandoned = super().begin_again()
        if abandoned is None:
            return None
        entry, self.__call__ = self.__call__, self._ordinary
        return abandoned, entry

    def called(self, *args: Any, **keywords: Any) -> Any:
        """What a call does."""
        raise NotImplementedError

    def _again(self, made: Made, args: tuple[Any, ...]) -> None:
        if made.entry is None and made.calls >= 0:
            made.calls += 1
            if made.calls > _ORDINARY:
                made.calls = -1
                made.entry = self._made_entry(made, args)
        if made.entry is not None:
            self.__call__ = made.entry

    def _made_entry(self, made: Made, args: tuple[Any, ...]) -> Any:
        engine, gives = made.engine, _letters(made.returns)
        kinds = [_KINDS.get(type(arg)) for arg in args]
        looks = looks_of(made.unit)
        if not isinstance(engine, CompiledEngine) or gives is None or looks is None:
            return None
        if None in kinds:
            return None
        letters = "".join(map(str, kinds))
        return engine.entry(ROOT, letters, gives, looks, self._busy, self._ordinary)


def _letters(type_: Type) -> str | None:
    """A value's type for the entry; `None` for one that it does not make."""
    if not isinstance(type_, TupleType):
        return _VALUES.get(type_)
    items = [_letters(item) for item in type_.items]
    if not 0 < len(items) < 10 or None in items:
        return None
    return f"t{len(items)}" + "".join(map(str, items))


def _ordinary(this: "weakref.ref[EnteredCallable]") -> Callable[..., Any]:
    """The ordinary call, which must not keep the object alive that has it."""

    def call(*args: Any, **keywords: Any) -> Any:
        owner = this()
        if owner is None:
            raise ReferenceError(
                "the compiled function that this `__call__` is of is gone; keep the "
                "function, not its `__call__`"
            )
        return owner.called(*args, **keywords)

    return call

"""A process forked while another thread was in a compiled function.

The child has a copy of the program in the middle of its run, and of the lock that the
thread held, which is not there to give it back. The child compiles the function again.
"""

import os
from typing import Any, Protocol
from weakref import WeakValueDictionary


class Forkable(Protocol):
    """Something that threads take turns in."""

    def begin_again(self) -> Any:
        """Forget what a thread was in; return what must not be freed."""
        ...


_FORKABLE: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""By `id`: not all of them can be hashed."""

_ABANDONED: list[Any] = []
"""Programs in the middle of a run that will not go on: never freed."""


def follow_forks(owner: Forkable) -> None:
    """Have something begin again in a child process."""
    _FORKABLE[id(owner)] = owner


def _in_child() -> None:
    for owner in list(_FORKABLE.values()):
        _ABANDONED.append(owner.begin_again())


if hasattr(os, "register_at_fork"):  # not on Windows
    os.register_at_fork(after_in_child=_in_child)

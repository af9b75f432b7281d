"""The compiled accelerator, if it is loaded."""

from __future__ import annotations

from typing import Any


class _Loaded:
    """The compiled module, once there is one; `using` says whether it is to be used."""

    module: Any = None
    using = False


def native() -> Any:
    """The compiled module if it is to be used, else `None`."""
    return _Loaded.module if _Loaded.using else None


def native_for(trace: Any) -> Any:
    """The compiled module if it is to be used and can read what this trace holds.

    It looks into dictionaries directly; snapshots that are away look in at each access.
    """
    return native() if type(trace.held.storages) is dict else None

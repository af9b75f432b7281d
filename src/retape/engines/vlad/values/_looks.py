"""How the arguments of a call look: all that is asked of them before it.

Of looks it is known what was compiled for them, and what the runtime is told of them.
"""

from typing import Any

Look = type | bool | tuple[int, ...]
"""What an argument looks like: `float` or `int`, a bool itself, an array's shape."""


def looks_of(args: tuple[Any, ...], largest: int) -> tuple[Look, ...] | None:
    """How numbers, bools and arrays of doubles look; `None` with anything else.

    Args:
        args: Arguments of a call. Those of the same looks have the same types.
        largest: The largest int that a double tells from the next one.
    """
    looks: list[Look] = []
    array: Any = None
    for arg in args:  # asked before every call: no generator, no helper
        kind = arg.__class__
        if kind is float:
            looks.append(kind)
        elif kind is int:
            if not -largest <= arg <= largest:
                return None
            looks.append(kind)
        elif kind is bool:
            looks.append(arg)
        else:
            if kind is not array:
                if kind.__name__ != "ndarray" or kind.__module__ != "numpy":
                    return None
                array = kind
            dtype, shape = arg.dtype, arg.shape
            if dtype.char != "d" or not dtype.isnative or not 1 <= len(shape) <= 2:
                return None
            looks.append(shape)
    return tuple(looks)

"""Says what goes on where that takes longer than a second."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic
from typing import TextIO

_PATIENCE = 1.0
"""Seconds before anything is said."""
_EVERY = 0.5
"""Seconds between two lines."""


@contextmanager
def waiting(what: str, out: TextIO | None = None) -> Iterator[None]:
    """Tell on a terminal, once a second has passed, for how long something goes on.

    Args:
        what: A phrase such as "searching for the best plan".
        out: By default standard error, if that is a terminal.
    """
    stream = sys.stderr if out is None else out
    if not stream.isatty():
        yield
        return
    ended, told = threading.Event(), []
    began = monotonic()

    def tell() -> None:
        pause = _PATIENCE
        while not ended.wait(pause):
            line = f"retape: {what}, {monotonic() - began:.0f} s"
            told.append(len(line))
            stream.write(f"\r{line}")
            stream.flush()
            pause = _EVERY

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        ended.set()
        teller.join()
        if told:
            stream.write("\r" + " " * max(told) + "\r")
            stream.flush()

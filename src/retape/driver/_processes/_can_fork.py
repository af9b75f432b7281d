"""Refuse to fork a process with threads, which the child would lack and wait for."""

import os
import socket
import sys
import threading

from retape._errors import UnsupportedError

_HARMFUL = ("libgomp", "libiomp5", "libomp.so", "libmkl")
"""Libraries whose threads a child lacks after a fork, and would wait for."""


def refuse_threads() -> None:
    """Refuse what cannot be forked.

    Raises:
        UnsupportedError: If there is no `fork`, or there are threads that a child would
            lack.
    """
    if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
        raise UnsupportedError(
            "`Program(hidden=True)` forks processes, and this platform cannot. Use a "
            "POSIX system, or a step whose state is its argument."
        )
    others = [t.name for t in threading.enumerate() if t is not threading.main_thread()]
    if others:
        raise UnsupportedError(
            f"`Program(hidden=True)` forks this process, and it has other threads "
            f"({', '.join(others)}), which a child lacks. Call it before they are "
            "started, or in a process of its own."
        )
    if "jax" in sys.modules or "jaxlib" in sys.modules:
        raise UnsupportedError(
            "`Program(hidden=True)` forks this process, and JAX, which is imported, "
            "has threads that a child lacks. Run it in a process without JAX."
        )
    harmful = _mapped(_HARMFUL)
    if harmful and _threads() > 1 and os.environ.get("OMP_NUM_THREADS") != "1":
        raise UnsupportedError(
            f"`Program(hidden=True)` forks this process, and `{harmful}` may have "
            "threads that a child lacks. Set `OMP_NUM_THREADS=1` before the start."
        )


def _mapped(names: tuple[str, ...]) -> str:
    """The first of some libraries that is loaded; nothing where it is not told."""
    try:
        with open("/proc/self/maps", encoding="utf-8") as lines:
            text = lines.read()
    except OSError:
        return ""
    return next((name for name in names if name in text), "")


def _threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))
    except OSError:
        return 1

"""Running a compiled program so that Ctrl-C is heard.

XLA runs a program to its end without looking at signals: a loop that never ends would
hang the session. So the program runs in a thread of its own, and the main thread
waits in Python, where an interrupt arrives.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from retape._errors import RetapeError

_INTERRUPTED = 130
"""The exit status of a process that Ctrl-C ended: 128 + SIGINT."""

_POLL_SECONDS = 0.05
"""How long an interrupt may go unheard; a finished program wakes the wait at once."""


class Interrupted(RetapeError, KeyboardInterrupt):
    """Ctrl-C while a program ran.

    It is a `KeyboardInterrupt` too, so that nothing that lets those through changes.
    """


def _leave_quietly(finished: threading.Event) -> None:
    """When Python exits, end the process at once if the program still runs.

    Taking the interpreter down under a running program would crash it. This handler is
    registered last, so it runs first: nothing of the caller's would come after it but
    other handlers, and those run when the program has ended by then.
    """

    def leave() -> None:
        if not finished.is_set():
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(_INTERRUPTED)

    atexit.register(leave)


def interruptible(run: Callable[..., Any], args: Sequence[Any]) -> Any:
    """`run(*args)`, left on Ctrl-C.

    Raises:
        Interrupted: On Ctrl-C. The program itself cannot be stopped.
    """
    if threading.current_thread() is not threading.main_thread():
        return run(*args)
    began = time.monotonic()
    outcome: list[Any] = []
    failure: list[BaseException] = []
    finished = threading.Event()
    wide = jax.dtypes.canonicalize_dtype(np.float64) == np.float64

    def work() -> None:
        try:
            # A callback of the program sees the settings of this thread.
            with jax.enable_x64(wide):
                # Dispatch may be asynchronous: the wait, too, must be here.
                outcome.append(jax.block_until_ready(run(*args)))
        except BaseException as error:  # noqa: BLE001 (re-raised by the caller below)
            failure.append(error)
        finally:
            finished.set()

    thread = threading.Thread(target=work, daemon=True, name="retape")
    thread.start()
    try:
        # Not `thread.join`: an interrupt in the middle of it can leave a running
        # thread marked as ended (Python 3.11).
        while not finished.wait(_POLL_SECONDS):
            pass
    except KeyboardInterrupt:
        _leave_quietly(finished)
        raise Interrupted(
            f"interrupted after {time.monotonic() - began:.1f} s of `retape.jax`. A "
            "compiled program cannot be stopped half-way: it goes on in the background "
            "until it ends or Python exits, and its result is lost. If a loop never "
            "ends, bound its trip count."
        ) from None
    if failure:
        raise failure[0]
    return outcome[0]

"""A worker's own side: a loop that does what the caller's process asks."""

# Messages are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from retape._errors import MachineError
from retape._forked._system import (
    end_when_hung_up,
    fork,
    is_gone,
    private_bytes,
    received,
    watched,
)
from retape.driver._machine import Machine


def serve(machine: Machine[Any, Any, Any], end: Connection) -> NoReturn:
    """Be a worker: hold a capsule, and do what is asked, until the caller hangs up."""
    capsule: Any = None
    children: list[int] = []
    end_when_hung_up()
    while True:
        try:
            name, *arguments = end.recv()
        except (EOFError, OSError):
            _leave(children)
        children = [pid for pid in children if not is_gone(pid)]
        answer: tuple[bool, Any]
        try:
            if name == "fork":
                theirs = received(end)
                pid = fork()
                if pid == 0:
                    end.close()
                    end, children = theirs, []
                    continue
                theirs.close()
                children.append(pid)
                answer = True, pid
            elif name == "private":
                answer = True, private_bytes()
            else:
                with watched(end):
                    if capsule is None:
                        capsule = machine.start()
                    if name == "advance":
                        capsule, made = machine.advance(capsule, *arguments)
                        answer = True, int(made)
                    else:
                        answer = True, machine.reverse(capsule, *arguments)
        except BaseException as error:
            answer = False, _as_sent(error)
        try:
            end.send(answer)
        except OSError:
            _leave(children)
        except Exception as error:  # What cannot be pickled raises anything.
            end.send((False, _cannot_send(answer, error)))


def _as_sent(error: BaseException) -> BaseException:
    """An error, if the caller's process will be able to make it again."""
    try:
        pickle.loads(pickle.dumps(error))
    except Exception as failure:
        return _cannot_send((False, error), failure)
    return error


def _cannot_send(answer: tuple[bool, Any], error: Exception) -> Exception:
    fine, value = answer
    what = "The cotangent" if fine else f"The error `{value!r}` of a step"
    return MachineError(
        f"{what} cannot be sent from the process of a snapshot to the caller's: "
        f"{error}. Cotangents and errors must be picklable."
    )


def _leave(children: Sequence[int]) -> NoReturn:
    for pid in children:
        is_gone(pid)
    with suppress(Exception):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)

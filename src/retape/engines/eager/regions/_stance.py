"""While something is recorded, the compiler compiles for the recording.

At each call of a compiled function the compiler asks what is to look at the frames that
it runs. It is told another one then, which has graphs compiled by a `RegionBackend`.
PyTorch has no public way to choose a backend by what the program chose, so a function
of a module is replaced meanwhile; in threads that record nothing it does what it did.
"""

import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch

from retape.engines.eager import is_tried
from retape.engines.eager._errors import UnsupportedError
from retape.engines.eager._torch_compile import keeping_compiled_code
from retape.engines.eager.record._dispatch_mode import active_recorder
from retape.engines.eager.record._sharded_modules import has_sharded_modules
from retape.engines.eager.regions._backend import RegionBackend
from retape.engines.eager.regions._quiet import unseen

_ASKED = "_callback_from_stance"
_LEFT_ALONE = (
    f"{Path(__file__).resolve().parents[3]}{os.sep}",
    f"{Path(torch.__file__).parent / '_higher_order_ops'}{os.sep}",
)
_stance_lock = threading.Lock()
_keeping = 0
_usual: Any = None
_backends: deque[RegionBackend] = deque(maxlen=64)
_callbacks: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def why_no_regions() -> str | None:
    """Why no compiled function can be a step now, if none can: a clause."""
    frames: Any = sys.modules.get("torch._dynamo.eval_frame")
    if frames is None:
        return "the compiler was not there when the recording began"
    if not is_tried(torch.__version__) or not hasattr(frames, _ASKED):
        return "that is done by private parts of PyTorch, tried in other releases only"
    if has_sharded_modules():
        return "parameters are gathered for sharded modules (FSDP2) by hooks"
    return None


@contextmanager
def regions_are_steps() -> Iterator[None]:
    """Compiled functions that are called in this thread's recording are its steps."""
    _count(+1)
    try:
        with keeping_compiled_code():
            yield
    finally:
        _count(-1)


def _count(by: int) -> None:
    global _keeping, _usual
    frames: Any = torch._dynamo.eval_frame  # pyright: ignore[reportAttributeAccessIssue]
    with _stance_lock:
        if _keeping == 0:
            _usual = getattr(frames, _ASKED)
            setattr(frames, _ASKED, _asking(_usual))
        _keeping += by
        if _keeping == 0:
            setattr(frames, _ASKED, _usual)


def _asking(original: Callable[..., Any]) -> Callable[..., Any]:
    def asked(callback: Any) -> Any:
        found = original(callback)
        if active_recorder() is None or not callable(found):
            return found
        return _for_recordings(found)

    return asked


def _for_recordings(callback: Any) -> Any:
    """What takes the place of a callback of the compiler, and never changes."""
    if isinstance(callback, _callback_type()):
        return callback
    with _stance_lock:
        found = _callbacks.get(callback)
        if found is None:
            found = _callbacks[callback] = _made_from(callback)
        return found


def _made_from(callback: Any) -> Any:
    from torch._dynamo.eval_frame import innermost_backend

    convert = callback._torchdynamo_orig_backend
    if not hasattr(convert, "_clone_with_backend"):
        raise UnsupportedError(
            "A compiled function was called under `recompute` and a stance of the "
            "compiler (`torch.compiler.set_stance`) in which nothing new is compiled. "
            "What was compiled outside cannot be recorded: leave the stance inside of "
            "`recompute`."
        )
    backend = _backend_for(innermost_backend(callback))
    return _callback_type()(convert._clone_with_backend(backend), callback.hooks)


def _backend_for(users: Any) -> RegionBackend:
    for each in _backends:
        if each.users is users or each.users == users:
            return each
    _backends.append(RegionBackend(users, _is_known(users)))
    return _backends[-1]


def _is_known(users: Any) -> bool:
    """Tell whether a backend compiles through AOTAutograd and nothing else."""
    from torch._dynamo.backends.common import AotAutograd
    from torch._dynamo.backends.registry import lookup_backend

    function = getattr(users, "compiler_fn", users)
    named = [lookup_backend(name) for name in ("eager", "aot_eager", "inductor")]
    ours = function.__class__.__module__.startswith("retape.")
    of_inductor = type(users).__name__ == "_TorchCompileInductorWrapper"
    return (
        ours
        or of_inductor
        or isinstance(function, AotAutograd)
        or any(function is each for each in named)
    )


@cache
def _callback_type() -> type:
    """The class of callbacks for recordings; the compiler takes long to import."""
    from torch._dynamo.convert_frame import CatchErrorsWrapper
    from torch._dynamo.types import ConvertFrameReturn, FrameAction, FrameExecStrategy

    class RegionCallback(CatchErrorsWrapper):
        """Looks at the program's frames, and not at the recorder's or at `cond`'s.

        PyTorch compiles operators that are given functions where they are called.
        """

        def __call__(self, frame: Any, *more: Any) -> Any:
            if frame.f_code.co_filename.startswith(_LEFT_ALONE):
                as_it_is = FrameExecStrategy(FrameAction.SKIP, FrameAction.SKIP)
                return ConvertFrameReturn(as_it_is, apply_to_code=False)
            with unseen():
                return super().__call__(frame, *more)

    return RegionCallback

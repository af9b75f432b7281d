"""Compiled code around and inside of a recording: refused around it, eager inside.

Modes that watch operators are kept from the compiler, too.
"""

import contextlib
import sys
from collections.abc import Callable
from importlib.util import find_spec
from inspect import currentframe
from itertools import pairwise
from threading import Lock
from traceback import walk_stack
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._python_dispatch import TorchDispatchMode

from retape._warn import warn
from retape.engines.eager._replaced import SharedChange


def being_compiled() -> bool:
    """Tell whether the compiler looks at the calls that are made now."""
    if _COMPILER not in sys.modules:
        return False
    if torch.compiler.is_dynamo_compiling():  # true only where this line is traced
        return True
    # A flag of the process: another thread may be the one that compiles.
    if torch.compiler.is_compiling() and get_proxy_mode() is not None:
        return True
    # The compiler has given that frame up; no public function tells that it goes on to
    # compile the ones below.
    state = torch._C._dynamo.eval_frame  # pyright: ignore[reportAttributeAccessIssue]
    return callable(state.get_eval_frame_callback())


def compiled_code_runs_eagerly() -> contextlib.AbstractContextManager[None]:
    """Where compiled code would be opaque, its Python code runs instead.

    Else the compiler would look at what watches the operators, too. Importing it takes
    three seconds, and `torch.scan` and its like do so where they are first called. So
    a block in which nobody has done it tells the compiler as soon as somebody does. Its
    stance is that of the process.
    """
    return _stance.made()


def warn_of_compiled_code() -> bool:
    """Say so if the operator that is being recorded belongs to a compiled function.

    The frame of the compiler's wrapper tells: it is on the stack although it has
    compiled nothing.

    Returns:
        Whether there was something to say.
    """
    if _COMPILER not in sys.modules or not _inside_of_wrapper():
        return False
    warn(
        "A function compiled by `torch.compile` was called under `recompute`. It runs "
        "eagerly there, since its operators are recorded: results are those of the "
        "function that is not compiled, and so is the speed. For a budget of compiled "
        "code, compile the whole model with `torch.compile(model, backend="
        "retape.torch.CompilerBudget(...))`, without `recompute`."
    )
    return True


def _inside_of_wrapper() -> bool:
    codes = (frame.f_code for frame, _ in walk_stack(currentframe()))
    return any(
        code.co_name == "compile_wrapper"
        and "_dynamo" in code.co_filename
        # `scan` and its like compile what they are given, for themselves alone.
        and "_higher_order_ops" not in caller.co_filename
        for code, caller in pairwise(codes)
    )


class _Eagerly:
    """The compiler's stance for a time, from where it is imported if that is to come.

    As a finder of modules it finds none, but is told of the compiler's import.
    """

    def __init__(self) -> None:
        self._stance, self._lock, self._over = contextlib.ExitStack(), Lock(), False
        if _COMPILER in sys.modules:
            self._begin()
        else:
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Called for each import of a module that is not there yet."""
        del path, target
        if name != _COMPILER:
            return None
        sys.meta_path.remove(self)  # the others find it
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            loader.exec_module = self._then_begin(loader.exec_module)
        return spec

    def _then_begin(self, execute: Callable[[Any], None]) -> Callable[[Any], None]:
        def executed(module: Any) -> None:
            execute(module)
            self._begin()

        return executed

    def _begin(self) -> None:
        with self._lock:
            if not self._over:  # another thread may have taken longer to import it
                self._stance.enter_context(torch.compiler.set_stance("force_eager"))

    def end(self) -> None:
        """Let the compiler do what it did before."""
        with self._lock:
            self._over = True
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self._stance.close()


_COMPILER = "torch._dynamo"
_stance = SharedChange(lambda: _Eagerly().end)


class OperatorWatch(TorchDispatchMode):
    """The frame of a dispatch mode: what it does is said in `__torch_dispatch__`.

    It sees operators that are given functions, too, as others.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do without a wrapper that costs a microsecond at each operator."""
        return False

"""Compiled code around and inside of a recording: refused around it, eager inside.

Modes that watch operators are kept from the compiler, too.
"""

import contextlib
import sys
from collections.abc import Iterator
from inspect import currentframe
from itertools import pairwise
from traceback import walk_stack

import torch
from torch.fx.experimental.proxy_tensor import get_proxy_mode
from torch.utils._python_dispatch import TorchDispatchMode

from retape._warn import warn
from retape.engines.eager._replaced import SharedChange, Undo


def being_compiled() -> bool:
    """Tell whether the compiler looks at the calls that are made now."""
    if "torch._dynamo" not in sys.modules:
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


@contextlib.contextmanager
def compiled_code_runs_eagerly() -> Iterator[None]:
    """Where compiled code would be opaque, its Python code runs instead.

    Nothing can have been compiled before the compiler was imported, which takes long.
    The compiler's stance is that of the process.
    """
    if "torch._dynamo" not in sys.modules:
        yield
        return
    with _stance.made():
        yield


def warn_of_compiled_code() -> bool:
    """Say so if the operator that is being recorded belongs to a compiled function.

    The frame of the compiler's wrapper tells: it is on the stack although it has
    compiled nothing.

    Returns:
        Whether there was something to say.
    """
    if "torch._dynamo" not in sys.modules or not _inside_of_wrapper():
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


def _run_eagerly() -> Undo:
    stance = contextlib.ExitStack()
    stance.enter_context(torch.compiler.set_stance("force_eager"))
    return stance.close


_stance = SharedChange(_run_eagerly)


class OperatorWatch(TorchDispatchMode):
    """The frame of a dispatch mode: what it does is said in `__torch_dispatch__`.

    It sees operators that are given functions, too, as others.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do without a wrapper that costs a microsecond at each operator."""
        return False

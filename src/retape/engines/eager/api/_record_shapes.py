"""The record of a program on tensors that have shapes and no values."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.utils._pytree import tree_map_only

from retape._errors import PlanError, UnsupportedError
from retape.engines.eager._limits import Limits
from retape.engines.eager._torch_compile import compiled_code_runs_eagerly
from retape.engines.eager.keep._keeper import Keeper
from retape.engines.eager.record._dispatch_mode import (
    Recorder,
    active_recorder,
)
from retape.engines.eager.replay._backward import Sweep
from retape.engines.eager.trace._report import Tally
from retape.engines.eager.trace._run import Run
from retape.engines.eager.trace._trace import Trace


def record_shapes(
    function: Callable[..., Any], args: Any, kwargs: Any, memory: int
) -> Recorder:
    """Record one run on tensors without values; its graph is still alive.

    Raises:
        PlanError: Inside of a recomputation.
        UnsupportedError: If the program reads values, or an operator does not say what
            it makes.
    """
    if active_recorder() is not None:
        raise PlanError(
            "`estimate` was called inside of a recomputation, which would record it. "
            "Call it before."
        )
    mode = FakeTensorMode(allow_non_fake_inputs=True)

    def shapes(tensor: Tensor) -> Tensor:
        return tensor if isinstance(tensor, FakeTensor) else mode.from_tensor(tensor)

    args, kwargs = tree_map_only(Tensor, shapes, (args, kwargs))
    limits = Limits(memory, None, 0)
    run = Run(Trace(), Tally())
    run.trace.without_values = True
    keeper, run.sweep = Keeper(run, limits), Sweep(run, limits)
    recorder = Recorder(run, keeper)
    recorder.shapes = shapes
    hooks = torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: run.pack(shapes(tensor)), _refuse_gradients
    )
    generator = torch.get_rng_state()
    try:
        with ExitStack() as scope:
            # The compiler would compile the recorder itself; nothing runs to warn of.
            run.trace.warned = True
            eagerly = compiled_code_runs_eagerly()
            for each in (eagerly, mode, hooks, recorder):
                scope.enter_context(each)
            result = function(*args, **kwargs)
    except (DataDependentOutputException, DynamicOutputShapeException) as error:
        raise UnsupportedError(
            f"The program reads values: `{error}`. What it does depends on them, so it "
            "cannot be estimated from shapes. Run it once under `recompute` in a large "
            "budget instead; its report says how much all of it takes."
        ) from error
    except UnsupportedOperatorException as error:
        raise _no_fake_kernel(error) from error
    except RuntimeError as error:
        if _CUSTOM not in str(error):
            raise
        raise _no_fake_kernel(str(error).partition(_CUSTOM)[2].split(")")[0]) from error
    finally:
        torch.set_rng_state(generator)
        torch.clear_autocast_cache()  # of casts that have no values
    _refuse_workspaces(run)
    keeper.finish()
    run.kept_result = result  # the graph has to live until it is measured
    run.end_of_recording()
    return recorder


def _refuse_gradients(saved: object) -> Tensor:
    del saved
    raise UnsupportedError(
        "The program asks for a gradient inside, which needs values, so it cannot be "
        "estimated from shapes. In a large budget it runs as it is; the report says "
        "how much all of it takes."
    )


_CUSTOM = "no fake impl registered for <CustomOpDef("
"""What PyTorch says of an operator made by `torch.library.custom_op`."""


def _no_fake_kernel(operator: object) -> UnsupportedError:
    return UnsupportedError(
        f"`{operator}` does not say what it makes from shapes alone. Give it a fake "
        "kernel (`torch.library.register_fake`), or run the program once under "
        "`recompute` in a large budget."
    )


def _refuse_workspaces(run: Run) -> None:
    for step in run.trace.steps:
        if step.signature.kind.scratch:
            raise UnsupportedError(
                f"`{step.signature.func}` saves a workspace whose size shows only when "
                "it runs. Run the program once under `recompute` in a large budget "
                "instead; its report says how much all of it takes."
            )

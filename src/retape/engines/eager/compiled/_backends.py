"""The compiler's backends, with a partitioner of ours."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import fx

from retape.engines.eager._errors import PlanError

BACKENDS = ("inductor", "aot_eager")
Partitioner = Callable[..., tuple[fx.GraphModule, fx.GraphModule]]


def compile_graph(
    backend: str,
    graph: fx.GraphModule,
    inputs: Any,
    partitioner: Partitioner,
    options: Mapping[str, Any],
) -> Callable[..., Any]:
    """Compile what Dynamo has traced.

    Args:
        backend: One of `BACKENDS`.
        graph: The traced graph.
        inputs: Its inputs, without values.
        partitioner: What splits the joint graph.
        options: `mode` and `options` of `torch.compile`.

    Raises:
        PlanError: If the backend has no such options.
    """
    if backend == "aot_eager":
        return _eagerly(graph, inputs, partitioner, options)
    return _by_inductor(graph, inputs, partitioner, options)


def _eagerly(
    graph: fx.GraphModule, inputs: Any, partitioner: Partitioner, options: Any
) -> Callable[..., Any]:
    from torch._dynamo.backends.common import aot_autograd
    from torch._dynamo.backends.debugging import boxed_nop

    if options:
        raise PlanError(
            f"`aot_eager` takes no {_named(options)}; those are of the backend "
            '"inductor". Leave them out.'
        )
    compiler = aot_autograd(
        fw_compiler=boxed_nop,
        partition_fn=partitioner,
        keep_inference_input_mutations=True,
    )
    return compiler(graph, inputs)


def _by_inductor(
    graph: fx.GraphModule, inputs: Any, partitioner: Partitioner, options: Any
) -> Callable[..., Any]:
    from torch._functorch import config as functorch_config
    from torch._inductor import list_mode_options
    from torch._inductor.compile_fx import compile_fx
    from torch._inductor.custom_graph_pass import CustomPartitionerFn

    class Split(CustomPartitionerFn):
        """The partitioner, in the form that inductor takes."""

        def __call__(
            self, gm: fx.GraphModule, joint_inputs: Any, **more: Any
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            return partitioner(gm, joint_inputs, **more)

        def uuid(self) -> None:
            """Nothing, which keeps the graph out of caches."""

    unknown = {k: v for k, v in options.items() if k not in ("mode", "options")}
    if unknown:
        raise PlanError(
            f"A backend of `torch.compile` was given {_named(unknown)}, which is "
            "neither `mode` nor `options`. Leave it out."
        )
    patches: dict[str, Any] = {}
    if options.get("mode") is not None:
        patches |= list_mode_options(options["mode"])
    patches |= options.get("options") or {}
    if patches.get("custom_partitioner_fn") is not None:
        raise PlanError(
            "`options` has a `custom_partitioner_fn` of its own, and a budget is held "
            "by another one. Give one of the two."
        )
    # A graph from a cache would have been planned for another budget.
    patches |= {"custom_partitioner_fn": Split(), "fx_graph_cache": False}
    with functorch_config.patch(enable_autograd_cache=False):
        compiled: Any = compile_fx(graph, inputs, config_patches=patches)
    return compiled


def _named(options: Mapping[str, Any]) -> str:
    return ", ".join(f"`{each}`" for each in options)

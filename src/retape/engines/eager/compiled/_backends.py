"""The compiler's backends, with the choice of what is saved made here.

`torch._functorch.config.activation_memory_budget_solver` is asked only where the
compiler's first guesses are too large by its own measure, in which parameters count; so
a solver cannot hold bytes. What is replaced instead, for the time of one partition, is
the function that asks it.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx

from retape._errors import PlanError, UnsupportedError
from retape.engines.eager.compiled._joint import Joint, read_joint

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
    caches = dict.fromkeys(("fx_graph_cache", "fx_graph_remote_cache"), False)
    patches |= {"custom_partitioner_fn": Split(), **caches}
    compiled: Any = compile_fx(graph, inputs, config_patches=patches)
    return compiled


def _named(options: Mapping[str, Any]) -> str:
    return ", ".join(f"`{each}`" for each in options)


Choice = Callable[[Joint, list[fx.Node]], list[fx.Node]]


def partition(
    joint_module: fx.GraphModule, joint_inputs: Any, choose: Choice, **options: Any
) -> tuple[fx.GraphModule, fx.GraphModule]:
    """Split a joint graph into forward and backward.

    The compiler's lock is held while it compiles, so that no other thread sees the
    function that is put in.

    Args:
        joint_module: The joint graph.
        joint_inputs: As PyTorch hands them over.
        choose: Given the graph and what PyTorch would save, the nodes to save.
        **options: As PyTorch hands them over.

    Raises:
        UnsupportedError: If there is nothing to choose, or a size is not known.
    """
    # It loads the compiler, which takes longer than all the rest of PyTorch.
    from torch._functorch import partitioners

    usual_choice = partitioners.choose_saved_values_set
    outputs = int(options["num_fwd_outputs"])
    asked = False

    def chosen(graph: fx.Graph, info: Any, memory_budget: float = 1) -> list[fx.Node]:
        nonlocal asked
        asked = True
        del memory_budget
        usual = usual_choice(graph, info, 1)
        returned = list(graph.output_node().args[0])  # pyright: ignore
        joint = read_joint(
            graph,
            cotangents=info.tangents_closure,
            inputs=info.inputs,
            outputs=returned[:outputs],
            gradients=returned[outputs:],
            overwritten=_written_inputs(graph),
        )
        return choose(joint, usual)

    partitioners.choose_saved_values_set = chosen
    try:
        parts = partitioners.min_cut_rematerialization_partition(
            joint_module, joint_inputs, **options
        )
    finally:
        partitioners.choose_saved_values_set = usual_choice
    if not asked:
        raise UnsupportedError(
            "No gradient of the compiled graph depends on what its backward is given, "
            "so the compiler asks for no plan. Compile without a budget."
        )
    return parts


def _written_inputs(graph: fx.Graph) -> frozenset[str]:
    """Inputs that the forward writes to: in the graph, or after it."""
    copies = graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    names = {each.args[0].name for each in copies if isinstance(each.args[0], fx.Node)}
    return frozenset(names)

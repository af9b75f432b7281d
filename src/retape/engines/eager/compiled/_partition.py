"""PyTorch's own partitioner, with the choice of what is saved made here.

`torch._functorch.config.activation_memory_budget_solver` is asked only where the
compiler's first guesses are too large by its own measure, in which parameters count; so
a solver cannot hold bytes. What is replaced instead, for the time of one partition, is
the function that asks it.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from retape.engines.eager._errors import UnsupportedError
from retape.engines.eager.compiled._joint import Joint, read_joint

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

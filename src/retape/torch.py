"""Reverse-mode gradients of PyTorch programs in bounded memory.

- `recompute`: a byte budget for any program, with nothing to annotate.
- `estimate`: what a budget costs, without running the program.
- `diagnose`: the operator, the module and the line that spoil a gradient.
- `checkpoint`, `Checkpointed`, `checkpoint_sequential`: the familiar forms.
- `CompilerBudget`: a byte budget for a compiled model, as a backend of `torch.compile`.
- `Graph` and its functions: a graph with marked checkpoints, node by node.
"""

from retape.engines.eager._errors import MutationError as MutationError
from retape.engines.eager._errors import RecomputeDepthError as RecomputeDepthError
from retape.engines.eager.api._checkpoint import checkpoint as checkpoint
from retape.engines.eager.api._checkpoint_sequential import (
    checkpoint_sequential as checkpoint_sequential,
)
from retape.engines.eager.api._checkpointed import Checkpointed as Checkpointed
from retape.engines.eager.api._compiler_budget import CompiledPlan as CompiledPlan
from retape.engines.eager.api._compiler_budget import CompilerBudget as CompilerBudget
from retape.engines.eager.api._diagnose import diagnose as diagnose
from retape.engines.eager.api._estimate import Estimate as Estimate
from retape.engines.eager.api._estimate import Point as Point
from retape.engines.eager.api._estimate import estimate as estimate
from retape.engines.eager.api._memory_meter import MemoryMeter as MemoryMeter
from retape.engines.eager.api._recompute import Recomputation as Recomputation
from retape.engines.eager.api._recompute import recompute as recompute
from retape.engines.eager.graph._graph import Graph as Graph
from retape.engines.eager.graph._graph import (
    auto_checkpoint_by_depth as auto_checkpoint_by_depth,
)
from retape.engines.eager.graph._graph import (
    auto_checkpoint_every_n as auto_checkpoint_every_n,
)
from retape.engines.eager.graph._graph import mark_checkpoint as mark_checkpoint
from retape.engines.eager.graph._node import CheckpointOptions as CheckpointOptions
from retape.engines.eager.graph._node import Node as Node
from retape.engines.eager.graph._recompute_subgraph import (
    on_recomputed as on_recomputed,
)
from retape.engines.eager.graph._recompute_subgraph import (
    recompute_subgraph as recompute_subgraph,
)
from retape.engines.eager.native._accelerate import accelerate as accelerate
from retape.engines.eager.record._policy import matrix_products as matrix_products
from retape.engines.eager.record._regions import name_modules as name_modules
from retape.engines.eager.record._regions import names as names
from retape.engines.eager.record._regions import region as region
from retape.engines.eager.trace._report import EagerReport as EagerReport
from retape.engines.eager.trace._schedule import Part as Part
from retape.engines.eager.trace._schedule import RunPlan as RunPlan

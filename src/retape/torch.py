"""Reverse-mode gradients of PyTorch programs in bounded memory.

- `recompute`: a byte budget for any program, with nothing to annotate.
- `checkpoint`, `Checkpointed`, `checkpoint_sequential`: the familiar forms.
- `Graph` and its functions: a graph with marked checkpoints, node by node.
"""

from retape.engines.eager._checkpoint import Checkpointed as Checkpointed
from retape.engines.eager._checkpoint import checkpoint as checkpoint
from retape.engines.eager._errors import MutationError as MutationError
from retape.engines.eager._errors import RecomputeDepthError as RecomputeDepthError
from retape.engines.eager._graph import Graph as Graph
from retape.engines.eager._graph import (
    auto_checkpoint_by_depth as auto_checkpoint_by_depth,
)
from retape.engines.eager._graph import (
    auto_checkpoint_every_n as auto_checkpoint_every_n,
)
from retape.engines.eager._graph import mark_checkpoint as mark_checkpoint
from retape.engines.eager._native import accelerate as accelerate
from retape.engines.eager._node import CheckpointOptions as CheckpointOptions
from retape.engines.eager._node import Node as Node
from retape.engines.eager._policy import matrix_products as matrix_products
from retape.engines.eager._recompute import Recomputation as Recomputation
from retape.engines.eager._recompute import recompute as recompute
from retape.engines.eager._report import EagerReport as EagerReport
from retape.engines.eager._sequence import (
    checkpoint_sequential as checkpoint_sequential,
)
from retape.engines.eager._subgraph import on_recomputed as on_recomputed
from retape.engines.eager._subgraph import recompute_subgraph as recompute_subgraph

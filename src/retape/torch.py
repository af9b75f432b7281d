"""Reverse-mode gradients of PyTorch programs in bounded memory.

- `recompute`: a byte budget for any program, with nothing to annotate.
- `estimate`: what a budget costs, without running the program.
- `diagnose`: the operator, the module and the line that spoil a gradient.
- `checkpoint`, `Checkpointed`, `checkpoint_sequential`: the familiar forms.
- `CompilerBudget`: a byte budget for a compiled model, as a backend of `torch.compile`.
- `Graph`: a graph with marked checkpoints, node by node.
"""

from retape.engines.eager.api._checkpoint import checkpoint as checkpoint
from retape.engines.eager.api._checkpoint_sequential import (
    checkpoint_sequential as checkpoint_sequential,
)
from retape.engines.eager.api._checkpointed import Checkpointed as Checkpointed
from retape.engines.eager.api._compiler_budget import CompilerBudget as CompilerBudget
from retape.engines.eager.api._diagnose import diagnose as diagnose
from retape.engines.eager.api._estimate import estimate as estimate
from retape.engines.eager.api._memory_meter import MemoryMeter as MemoryMeter
from retape.engines.eager.api._recompute import recompute as recompute
from retape.engines.eager.graph._graph import Graph as Graph
from retape.engines.eager.native._accelerate import accelerate as accelerate
from retape.engines.eager.record._policy import matrix_products as matrix_products
from retape.engines.eager.record._regions import name_modules as name_modules
from retape.engines.eager.record._regions import names as names
from retape.engines.eager.record._regions import region as region

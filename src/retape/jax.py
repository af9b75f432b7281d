"""Gradients of JAX functions in sublinear memory.

`grad`, `value_and_grad` and `vjp` are called like JAX's own and take a `plan`.
`checkpointed` gives back the function itself, for use inside larger programs.

For layers: `checkpoint`, `Checkpointed` and `policies`; `scan`, `fori_loop` and
`while_loop`; and `plan`, which says what fits into some memory.
"""

from .engines.jaxpr._explain import Explanation as Explanation
from .engines.jaxpr._explain import Measured as Measured
from .engines.jaxpr._explain import explain as explain
from .engines.jaxpr._explain import measure as measure
from .engines.jaxpr._remembered import clear_caches as clear_caches
from .engines.jaxpr._transform import checkpointed as checkpointed
from .engines.jaxpr._transform import grad as grad
from .engines.jaxpr._transform import value_and_grad as value_and_grad
from .engines.jaxpr._transform import vjp as vjp
from .engines.jaxpr.layers import policies as policies
from .engines.jaxpr.layers._checkpoint import checkpoint as checkpoint
from .engines.jaxpr.layers._loops import fori_loop as fori_loop
from .engines.jaxpr.layers._loops import while_loop as while_loop
from .engines.jaxpr.layers._planner import LayerPlan as LayerPlan
from .engines.jaxpr.layers._planner import plan as plan
from .engines.jaxpr.layers._question import Candidate as Candidate
from .engines.jaxpr.layers._scan import scan as scan
from .engines.jaxpr.layers._wrap import Checkpointed as Checkpointed

"""Gradients of JAX functions in sublinear memory.

`grad`, `value_and_grad` and `vjp` are called like JAX's own and take a `plan`.
`checkpointed` gives back the function itself, for use inside larger programs.

For layers: `checkpoint`, `Checkpointed` and `policies`; `scan`, `fori_loop` and
`while_loop`; and `advise`, which says what fits into some memory, and whether to do
anything at all.
"""

from retape.engines.jaxpr.api._transform import checkpointed as checkpointed
from retape.engines.jaxpr.api._transform import grad as grad
from retape.engines.jaxpr.api._transform import value_and_grad as value_and_grad
from retape.engines.jaxpr.api._transform import vjp as vjp
from retape.engines.jaxpr.api.inspect._explain import explain as explain
from retape.engines.jaxpr.api.inspect._measure import measure as measure
from retape.engines.jaxpr.api.inspect._show import show as show
from retape.engines.jaxpr.api.inspect._waits import count_waits as count_waits
from retape.engines.jaxpr.api.inspect._waits import gpu_options as gpu_options
from retape.engines.jaxpr.jaxprs._caches import clear_caches as clear_caches
from retape.engines.jaxpr.layers import policies as policies
from retape.engines.jaxpr.layers.face._checkpoint import checkpoint as checkpoint
from retape.engines.jaxpr.layers.face._loops import fori_loop as fori_loop
from retape.engines.jaxpr.layers.face._loops import scan as scan
from retape.engines.jaxpr.layers.face._loops import while_loop as while_loop
from retape.engines.jaxpr.layers.face._wrap_layer import Checkpointed as Checkpointed
from retape.engines.jaxpr.layers.listing._saved_values import saved as saved
from retape.engines.jaxpr.layers.planner._advise import advise as advise

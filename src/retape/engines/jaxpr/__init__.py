"""The JAX engine: any jaxpr as a machine whose steps can be counted and re-run."""

from retape.engines.jaxpr import _require_jax as _require_jax

# The primitives' rule for `vmap` needs the primitives, and they need it.
from retape.engines.jaxpr.calls import _batching as _batching

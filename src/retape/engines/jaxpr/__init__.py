"""The JAX engine: any jaxpr as a machine whose steps can be counted and re-run."""

from . import _available as _available

# The primitives' rule for `vmap` needs the primitives, and they need it.
from . import _batches as _batches

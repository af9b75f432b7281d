"""An adjoint for Optimistix's solvers, through their iterations, in a plan's memory.

optimistix.fixed_point(..., adjoint=retape.optimistix.RetapeAdjoint(plan=...))
"""

from retape._extras import require as _require

_require("optimistix", "jax", "numpy", "scipy", "equinox", "optimistix")

from retape.optimistix._adjoint import RetapeAdjoint as RetapeAdjoint  # noqa: E402

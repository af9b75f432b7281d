"""An adjoint for `diffrax.diffeqsolve`, in as many bytes as a plan says.

diffrax.diffeqsolve(..., adjoint=retape.diffrax.RetapeAdjoint(plan=...))
"""

from retape._extras import require as _require

_require("diffrax", "jax", "numpy", "scipy", "equinox", "diffrax")

from retape.diffrax._adjoint import RetapeAdjoint as RetapeAdjoint  # noqa: E402

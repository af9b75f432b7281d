"""An adjoint for `diffrax.diffeqsolve`, in as many bytes as a plan says.

diffrax.diffeqsolve(..., adjoint=retape.diffrax.RetapeAdjoint(plan=...))
"""

from retape.diffrax import _available as _available
from retape.diffrax._adjoint import RetapeAdjoint as RetapeAdjoint

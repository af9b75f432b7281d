"""An adjoint for Optimistix's solvers, through their iterations, in a plan's memory.

optimistix.fixed_point(..., adjoint=retape.optimistix.RetapeAdjoint(plan=...))
"""

from retape.optimistix import _available as _available
from retape.optimistix._adjoint import RetapeAdjoint as RetapeAdjoint

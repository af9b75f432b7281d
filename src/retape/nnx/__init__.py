"""Stacks of Flax NNX layers in sublinear memory."""

from retape.nnx import _available as _available
from retape.nnx._remat_scan import remat_scan as remat_scan

"""Stacks of Flax NNX layers in sublinear memory."""

from . import _available as _available
from ._scan import remat_scan as remat_scan

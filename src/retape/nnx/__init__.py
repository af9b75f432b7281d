"""Stacks of Flax NNX layers in sublinear memory."""

from ._scan import remat_scan as remat_scan

"""Stacks of Flax NNX layers in sublinear memory."""

from retape._extras import require as _require

_require("nnx", "jax", "numpy", "scipy", "flax")

from retape.nnx._remat_scan import remat_scan as remat_scan  # noqa: E402

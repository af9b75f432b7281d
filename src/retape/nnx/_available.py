"""Imported first: says what to install where Flax is missing."""

from .._extras import require

require("nnx", "jax", "numpy", "scipy", "flax")

"""Imported first: says what to install where Flax is missing."""

from retape._extras import require

require("nnx", "jax", "numpy", "scipy", "flax")

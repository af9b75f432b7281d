"""Imported first: says what to install where JAX is missing."""

from retape._extras import require

require("jax", "jax", "numpy", "scipy")

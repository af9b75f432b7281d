"""Imported first: says what to install where Optimistix is missing."""

from retape._extras import require

require("optimistix", "jax", "numpy", "scipy", "equinox", "optimistix")

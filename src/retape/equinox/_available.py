"""Imported first: says what to install where Equinox is missing."""

from retape._extras import require

require("equinox", "jax", "numpy", "scipy", "equinox")

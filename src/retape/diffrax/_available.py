"""Imported first: says what to install where diffrax is missing."""

from retape._extras import require

require("diffrax", "jax", "numpy", "scipy", "equinox", "diffrax")

"""Imported first: says what to install where Lightning is missing."""

from retape._extras import require

require("lightning", "torch", "numpy", "lightning")

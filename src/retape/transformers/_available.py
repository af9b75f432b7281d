"""Imported first: says what to install where Transformers is missing."""

from retape._extras import require

require("transformers", "torch", "numpy", "transformers", "accelerate")

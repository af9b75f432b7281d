"""The PyTorch engine: a recorded graph of operations, run again piece by piece."""

from ..._extras import require

require("torch", "torch", "numpy")

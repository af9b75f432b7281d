"""Programs that are hard to run twice.

Each takes `under`, a function that returns a fresh context manager for the part that
may be recomputed, and returns every tensor that must not differ by a bit: gradients,
buffers, outputs. Each seeds itself; the caller compares the final random states.
"""

from tests.judges.torch.hard import graphs, modules, values
from tests.judges.torch.hard.table import PROGRAMS

__all__ = ["PROGRAMS", "graphs", "modules", "values"]

"""Equinox's loops in sublinear memory: the same call, with all derivatives.

from retape.equinox import while_loop        # was: from equinox.internal import ...
"""

from retape._extras import require as _require

_require("equinox", "jax", "numpy", "scipy", "equinox")

from retape.equinox._loops import scan as scan  # noqa: E402
from retape.equinox._loops import while_loop as while_loop  # noqa: E402

"""Equinox's loops in sublinear memory: the same call, with all derivatives.

from retape.equinox import while_loop        # was: from equinox.internal import ...
"""

from retape.equinox import _available as _available
from retape.equinox._loops import scan as scan
from retape.equinox._loops import while_loop as while_loop

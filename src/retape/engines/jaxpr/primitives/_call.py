"""The two primitives themselves; `calls/_rules` says what they are and gives the rules.

They stand apart so that what a rule needs may bind them.
"""

from __future__ import annotations

from jax.extend import core

call_p = core.Primitive("retape_call")
call_p.multiple_results = True
linear_p = core.Primitive("retape_linear")
linear_p.multiple_results = True

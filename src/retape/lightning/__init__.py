"""A byte budget for Lightning's `Trainer`.

Trainer(..., callbacks=[retape.lightning.RetapeCallback(memory="12GB")])
"""

from retape._extras import require as _require

_require("lightning", "torch", "numpy", "lightning")

from retape.lightning._callback import RetapeCallback as RetapeCallback  # noqa: E402

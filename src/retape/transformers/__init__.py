"""A byte budget for Transformers' `Trainer`.

Trainer(..., callbacks=[retape.transformers.RetapeCallback(memory="12GB")])
"""

from retape._extras import require as _require

_require("transformers", "torch", "numpy", "transformers", "accelerate")

from retape.transformers._callback import RetapeCallback as RetapeCallback  # noqa: E402

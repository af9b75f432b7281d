"""A byte budget for Lightning's `Trainer`.

Trainer(..., callbacks=[retape.lightning.RetapeCallback(memory="12GB")])
"""

from retape.lightning import _available as _available
from retape.lightning._callback import RetapeCallback as RetapeCallback

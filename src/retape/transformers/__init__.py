"""A byte budget for Transformers' `Trainer`.

Trainer(..., callbacks=[retape.transformers.RetapeCallback(memory="12GB")])
"""

from retape.transformers import _available as _available
from retape.transformers._callback import RetapeCallback as RetapeCallback

"""No judge knows how many threads there are, and the accelerator is compiled once."""

import pytest

pytest.importorskip("torch")

from tests.judges.torch.fixtures import (  # noqa: E402, F401
    accelerated,
    compiled,
    one_thread,
)

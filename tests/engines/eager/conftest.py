import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def nothing_is_known() -> None:
    """A test follows no plan that an earlier one has left."""
    from retape.engines.eager._learned import forget_lessons
    from retape.engines.eager._sequence import forget_chains

    forget_lessons()
    forget_chains()

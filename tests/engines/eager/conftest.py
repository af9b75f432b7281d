import pytest

torch = pytest.importorskip("torch")

from tests.engines.eager.support.seams import forget  # noqa: E402
from tests.judges.torch.fixtures import (  # noqa: E402, F401
    accelerated,
    compiled,
    one_thread,
)


@pytest.fixture(autouse=True)
def nothing_is_known() -> None:
    """A test follows no plan that an earlier one has left."""
    forget()

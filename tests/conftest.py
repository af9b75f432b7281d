"""What all tests share: nothing random that is not seeded, and a limit of time."""

import random
import signal

import pytest
from hypothesis import settings

from tests.processor_time import (  # noqa: F401  (hooks, which pytest finds here)
    pytest_addoption,
    pytest_configure,
    pytest_fixture_setup,
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_runtest_protocol,
    pytest_sessionfinish,
)

# A shell has jobs in the background ignore the signal that some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("retape", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("retape")


@pytest.fixture
def seeded() -> random.Random:
    """A random source that gives the same numbers in every run."""
    return random.Random(20261121)

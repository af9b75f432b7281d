"""What all tests share: nothing random that is not seeded, and a limit of time."""

import atexit
import gc
import os
import random
import signal
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec

import pytest
from hypothesis import settings

from tests.processor_time import (  # noqa: F401  (hooks, which pytest finds here)
    pytest_addoption,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_fixture_setup,
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_runtest_protocol,
    pytest_sessionfinish,
)

# XLA's machine code is made without LLVM's optimisations, in one piece and without the
# compiler of its own for fusions: every program is small and runs once. The text that
# XLA compiles and the bytes that it counts come before them. The compilation of 90
# programs of the judges took 3.9 processor seconds with the first flag alone, 2.3 so.
IN_A_HURRY = (
    "--xla_backend_optimization_level=0 --xla_cpu_parallel_codegen_split_count=1"
)
if find_spec("jaxlib") and version("jaxlib").startswith("0.10."):
    # Later releases end the process at this word, and have no other compiler.
    IN_A_HURRY += " --xla_cpu_use_fusion_emitters=false"
os.environ.setdefault("XLA_FLAGS", IN_A_HURRY)

# A shell has jobs in the background ignore the signal that some tests send.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("retape", deadline=None, derandomize=True, max_examples=60)
settings.load_profile("retape")


def pytest_collection() -> None:
    """What is loaded stays: to look for garbage in it was a tenth of all the time."""
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """What a file leaves behind stays: later searches do not look through it again.

    One took up to 5 processor seconds: JAX's judge took 227 in all, and 185 so.
    """
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    """A worker that has told all ends at once: to take JAX down took 4 seconds."""
    if hasattr(config, "workerinput"):
        atexit.register(os._exit, 0)


@pytest.fixture(scope="session", autouse=True)
def _no_fsync() -> Iterator[None]:
    """What is tested survives in the page cache: to wait for the disk is only slow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture
def seeded() -> random.Random:
    """A random source that gives the same numbers in every run."""
    return random.Random(20261121)

"""What tests of the PyTorch part share; a `conftest.py` imports it."""

import fcntl
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import retape.torch


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def compiled() -> None:
    """The accelerator is there: compiled by one worker, and loaded by the others.

    It stays in the cache of `accelerate`, by the hash of its sources, so that a later
    run compiles nothing either.
    """
    with (Path(tempfile.gettempdir()) / "retape-accelerator.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        retape.torch.accelerate()
    retape.torch.accelerate(False)


@pytest.fixture(params=[False, True], ids=["python", "compiled"])
def accelerated(request: pytest.FixtureRequest) -> Iterator[bool]:
    """With and without compiled code."""
    if request.param:
        request.getfixturevalue("compiled")
    retape.torch.accelerate(request.param)
    yield request.param
    retape.torch.accelerate(False)

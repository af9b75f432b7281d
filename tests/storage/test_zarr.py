"""A store of sharded arrays: its tests need devices, so they have a process."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import retape.storage
from retape import MissingPackageError

HERE = Path(__file__).parent


@pytest.mark.slow
def test_on_eight_devices():
    pytest.importorskip("jax")
    pytest.importorskip("tensorstore")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    flags = "--xla_force_host_platform_device_count=8"
    done = subprocess.run(
        [*command, str(HERE / "zarr_on_devices.py")],
        env={**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"},
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:]


def test_without_the_package_it_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("retape._extras.find_spec", lambda name: None)
    with pytest.raises(
        MissingPackageError, match=r"`tensorstore` cannot be .*\[zarr\]"
    ):
        retape.storage.ZarrStore(tmp_path)

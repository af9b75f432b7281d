"""A cache of compiled objects of the judges' own, made without optimisation."""

import shutil

import pytest

from retape import vlad


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    patch, folder = pytest.MonkeyPatch(), tmp_path_factory.mktemp("objects")
    patch.setenv("RETAPE_CACHE", str(folder))
    patch.delenv("CC", raising=False)
    if gcc := shutil.which("gcc"):
        # Two thirds of the time of `-O2`; the last of these flags counts.
        quick = folder / "quick-gcc"
        quick.write_text(f'#!/bin/sh\nexec {gcc} "$@" -O0\n', encoding="utf-8")
        quick.chmod(0o755)
        patch.setenv("CC", str(quick))
    vlad.run("1")  # the runtime is compiled once, and is no test's own

"""Fixtures of the language's tests: a cache of objects of their own, made quickly."""

import shutil

import pytest

from retape import vlad
from tests.engines.vlad.support.seams import compile_with


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    patch = pytest.MonkeyPatch()
    patch.setenv("RETAPE_CACHE", str(tmp_path_factory.mktemp("objects")))
    patch.delenv("CC", raising=False)
    compile_with(patch, quickly=True)
    if shutil.which("cc") or shutil.which("gcc"):  # the runtime is nobody's own
        vlad.run("1")

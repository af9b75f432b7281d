"""Fixtures of the language's tests: a cache of objects of their own, made quickly."""

import pytest

from retape.engines.vlad.compiler.load import _c_compiler as _build


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    patch = pytest.MonkeyPatch()
    patch.setenv("RETAPE_CACHE", str(tmp_path_factory.mktemp("objects")))
    patch.delenv("CC", raising=False)
    flags = tuple("-O1" if flag == "-O2" else flag for flag in _build.FLAGS)
    patch.setattr(_build, "FLAGS", flags)

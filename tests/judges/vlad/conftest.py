"""A cache of compiled objects of the judges' own."""

import pytest

from retape import vlad


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    patch = pytest.MonkeyPatch()
    patch.setenv("RETAPE_CACHE", str(tmp_path_factory.mktemp("objects")))
    patch.delenv("CC", raising=False)
    vlad.run("1")  # the runtime is compiled once, and is no test's own

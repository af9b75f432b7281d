"""A plugin of pytest: the modules of a suite see stand-ins for packages.

`python -m benchmarks.peers` loads it, and names the suite in an environment variable.
"""

from __future__ import annotations

import importlib
import os
import types

import pytest
from benchmarks.peers.suites import SUITES, stand_in


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    suite = SUITES[os.environ["RETAPE_PEER"]]
    modules = {item.getparent(pytest.Module) for item in items}
    for package, replaced in suite.replaced.items():
        original = importlib.import_module(package)
        ours = stand_in(original, replaced())
        for module in modules:
            if module is not None:
                _put(module.obj, original, ours)


def _put(module: types.ModuleType, original: types.ModuleType, ours: object) -> None:
    """Replace a package, and what was imported from it, in a module's names."""
    inner = {
        id(getattr(original, name)): value
        for name, value in vars(ours).items()
        if not name.startswith("_") and hasattr(original, name)
    }
    for name, value in list(vars(module).items()):
        if value is original:
            setattr(module, name, ours)
        elif id(value) in inner:
            setattr(module, name, inner[id(value)])

"""Every example in the docstrings of the framework-free part runs as printed."""

import doctest
import importlib
import pkgutil

import pytest

import retape

PACKAGES = ["retape.schedule", "retape.storage", "retape.driver", "retape.viz"]
SINGLE = [
    "_plan",
    "_plans",
    "_plan_options",
    "_hosted_plans",
    "_mixed_plan",
    "_budget",
    "_bytes",
    "_adjoint",
    "interop",
]
MODULES = [
    f"{package}.{module.name}"
    for package in PACKAGES
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__)
    if module.name != "_figure"
] + [f"retape.{name}" for name in SINGLE]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of(name):
    module = importlib.import_module(name)
    names = {**vars(module), "retape": retape}
    failed, _ = doctest.testmod(module, extraglobs=names)
    assert failed == 0


def test_a_wrong_example_would_be_seen(capsys):
    test = doctest.DocTestParser().get_doctest(">>> 1 + 1\n3\n", {}, "x", None, 0)
    assert doctest.DocTestRunner().run(test).failed == 1
    assert "Expected" in capsys.readouterr().out

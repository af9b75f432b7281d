"""The public names: what is there, that it is documented, that nothing else is."""

import ast
import importlib
import inspect
import re
import runpy
from pathlib import Path

import pytest

import retape
from tests.plan.seams import MAKERS

DOCS = Path(__file__).parents[1] / "docs"

TOP_LEVEL = {
    "Adjoint", "BudgetError", "DeterminismError", "DiskStore", "GradientTypeError",
    "LanguageError", "MachineError", "MemoryStore", "MissingPackageError", "Plan",
    "PlanError", "Program", "RetapeError", "RetapeWarning", "RunInterrupted",
    "ScheduleError", "SnapshotError", "StoreError", "Tier", "StepCosts", "TieredStore",
    "UnsupportedError", "adjoint", "check_adjoint", "diagnose", "explain", "forward",
    "interruptible", "measure", "register_state",
} | {*MAKERS}  # fmt: skip

PACKAGES = [
    *("retape", "retape.schedule", "retape.storage"),
    *("retape.driver", "retape.testing", "retape.viz"),
]


LISTED = runpy.run_path(str(DOCS.parent / ".ci" / "names.py"))["public_names"]()


def test_the_top_level_names_are_these():
    assert LISTED["retape"].keys() == TOP_LEVEL


def test_every_top_level_name_is_there_when_it_is_used():
    assert set(dir(retape)) >= TOP_LEVEL
    for name in TOP_LEVEL:
        assert getattr(retape, name).__name__ == name


@pytest.mark.parametrize("package", PACKAGES)
def test_nothing_is_imported_without_being_public(package):
    module = importlib.import_module(package)
    assert module.__file__
    tree = ast.parse(Path(module.__file__).read_text())
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            assert all(alias.asname == alias.name for alias in node.names), package


@pytest.mark.parametrize("package", [*PACKAGES, "retape.plan", "retape.vlad"])
def test_no_helper_can_be_reached_in_a_public_package(package):
    for name, value in vars(importlib.import_module(package)).items():
        if not name.startswith("_") and not inspect.ismodule(value):
            assert name in LISTED.get(package, ()), f"{package}.{name}"


@pytest.mark.parametrize("package", ["retape.interop", "retape.native"])
def test_a_module_with_code_lists_what_stands_on_its_page(package):
    module = importlib.import_module(package)
    pages = "".join(page.read_text() for page in (DOCS / "api").glob("*.md"))
    documented = set(re.findall(rf"^::: {package}\.(\w+)$", pages, re.MULTILINE))
    homes = {name: getattr(module, name).__module__ for name in module.__all__}
    again = {name for name, home in homes.items() if home != package}
    records = {"Measured"}  # handed back, and made by nobody
    assert set(module.__all__) == (documented | again) - records


def test_errors_form_one_tree_and_refine_a_builtin():
    errors = [
        value
        for value in vars(retape).values()
        if inspect.isclass(value)
        and issubclass(value, Exception)
        and not issubclass(value, Warning)
    ]
    assert len(errors) == 13
    assert all(issubclass(error, retape.RetapeError) for error in errors)
    builtins = (ValueError, TypeError, RuntimeError, OSError, ImportError)
    assert all(
        issubclass(error, builtins)
        for error in errors
        if error is not retape.RetapeError
    )


def test_there_are_few_words_to_know():
    words = {name for names in LISTED.values() for name in names}
    assert len(words) <= 120


@pytest.mark.parametrize("module", LISTED)
def test_every_name_has_a_sentence(module):
    silent = [name for name, said in LISTED[module].items() if not said.endswith(".")]
    assert not silent, f"begin the docstrings of {module} with a sentence"


def test_no_object_has_two_public_names_in_two_modules():
    """One home for each; adapters that wear another package's words are apart."""
    homes: dict[int, list[str]] = {}
    for module in ("retape", "retape.driver", "retape.schedule", "retape.storage"):
        for name in LISTED[module]:
            found = getattr(importlib.import_module(module), name)
            homes.setdefault(id(found), []).append(f"{module}.{name}")
    assert [names for names in homes.values() if len(names) > 1] == []

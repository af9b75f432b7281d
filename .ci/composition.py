"""What composes with what: tables of the judges' tests, cell by cell, as they came out.

Runs the tests and prints the page: `python .ci/composition.py` (some twenty
minutes; `--only WORDS` prints the tables that have these words in their title).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.metadata
import io
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))


@dataclass(frozen=True)
class Table:
    """A test as a table: what names its rows and its columns, what a cell says."""

    title: str
    test: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    says: str
    passed: str = "="


JAX = (
    Table(
        "JAX: what others bring, by every way to a gradient",
        "tests/judges/jax/test_constructs.py::test_the_gradient_is_that_of_the_plain_form",
        ("name",), ("way",),
        "the gradient is that of the same function written with Python's own loops",
    ),
    Table(
        "JAX: what others bring, in a marked layer",
        "tests/judges/jax/test_constructs.py::test_a_marked_layer_has_that_gradient",
        ("name",), ("layer",),
        "the value and `jax.grad` of the layer are those of the plain form",
    ),
    Table(
        "JAX: what tells of it",
        "tests/judges/jax/test_constructs.py::test_what_tells_of_it_agrees",
        ("name",), ("way",),
        "the call answers, and what it says agrees with what a run does",
    ),
    Table(
        "JAX: side effects of a step",
        "tests/judges/jax/test_side_effects.py::test_a_step_says_once_what_it_says",
        ("loop", "options"), ("call",),
        "what a step says to the host, it says once",
    ),
    Table(
        "JAX: modules with state of their own",
        "tests/judges/jax/test_module_state.py::test_state_changes_once",
        ("row",), ("column",),
        "statistics, counters and generators of the module change as in one plain call",
    ),
    Table(
        "JAX: policies inside of control flow",
        "tests/judges/jax/test_policies_inside.py::test_a_policy_acts_inside",
        ("row",), ("column",),
        "the policy keeps the same values inside as outside",
    ),
)  # fmt: skip
TORCH = (
    Table(
        "PyTorch: operators of higher order",
        "tests/judges/torch/test_higher_order.py::test_right_or_refused",
        ("name", "reads"), ("face", "of_input"),
        "bit for bit PyTorch's gradients, or an error that names the operator",
    ),
    Table(
        "PyTorch: hooks on saved tensors",
        "tests/judges/torch/test_hooks.py::test_hooks_are_called_or_it_is_said",
        ("face",), ("inside",),
        "the hooks are called, or a warning says that they are not",
    ),
    Table(
        "PyTorch: copies of a model in a budget",
        "tests/judges/torch/test_copies.py::test_a_copy_is_a_model_of_its_own",
        ("name", "way"), ("while_it_trains",),
        "the copy computes with its own weights",
    ),
    Table(
        "PyTorch: policies",
        "tests/judges/torch/test_signatures.py::test_a_policy_in_any_form_is_one",
        ("policy",), ("face",),
        "the policy decides what is kept",
    ),
    Table(
        "PyTorch: generators of random numbers",
        "tests/judges/torch/test_generators.py::test_a_dropout_that_runs_again_drops_the_same",
        ("generator",), ("mode",),
        "what runs again draws the same numbers",
    ),
)  # fmt: skip
STORES = (
    Table(
        "Stores in stores",
        "tests/judges/core/test_stores.py::test_the_laws_of_stores",
        ("wrappers",), ("base",),
        "the stack, innermost first, obeys every law of `retape.testing.check_store`",
    ),
    Table(
        "Stores in stores",
        "tests/judges/core/test_stores.py::test_a_stack_that_cannot_work_is_refused_when_it_is_made",
        ("wrappers",), ("base",),
        "", passed="refused",
    ),
    Table(
        "Step functions under plans",
        "tests/judges/core/test_plans.py::test_the_gradient_is_that_by_hand",
        ("make",), ("plan",),
        "the gradient is that by hand, in a store in memory, on disk or in tiers",
    ),
)  # fmt: skip
NATIVE = (
    Table(
        "Python functions: second names of an array",
        "tests/judges/vlad/test_second_names.py::test_a_second_name_sees_a_change_or_is_refused",
        ("construct",), (),
        "the second name sees the change, as in CPython, or the line is refused",
    ),
)  # fmt: skip
LISTS = (
    ("tests/engines/jaxpr/api/test_composition.py", "JAX: transformations"),
    ("tests/engines/jaxpr/intake/test_effects.py", "JAX: effects"),
    ("tests/engines/jaxpr/calls/test_shard_map.py", "JAX: several devices"),
)
"""Files whose tests are one row each: JAX's transformations of a loop without an end
that is known, which `jax.grad` alone refuses, against the same with a counted loop."""

HEAD = """# What composes with what

Every pair is a test of the suite, and the page is printed by
`python .ci/composition.py` from its results ({versions}).
A section's sentence holds for all that stands behind **What**, in every way behind
**By**, but for the pairs that it names.
What is refused is an error:
[all of them](troubleshooting.md#unsupportederror-mutationerror).
"""


@dataclass(eq=False)  # pytest puts plugins in sets
class Results:
    """A pytest plugin that keeps each test's result and the values it was given."""

    found: dict[str, str] = field(default_factory=dict[str, str])
    given: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        spec = getattr(item, "callspec", None)
        given = dict(spec.params) if spec else {}
        if isinstance(stack := given.get("name"), tuple):
            base, *wrappers = stack
            given |= {"base": base, "wrappers": "+".join(wrappers) or "by itself"}
        self.given[item.nodeid] = given

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            known = "known to be wrong" if hasattr(report, "wasxfail") else None
            result = "=" if report.passed else known or report.outcome
            self.found[report.nodeid] = result

    def of(self, test: str) -> Iterator[tuple[dict[str, Any], str]]:
        for name, result in self.found.items():
            if name.partition("[")[0] == test or name.startswith(f"{test}::"):
                yield self.given[name], result


def said(name: str, value: Any) -> str:
    """A parameter of a test in words."""
    if isinstance(value, bool):
        return f"{name.replace('_', ' ')}: {'yes' if value else 'no'}"
    value = getattr(value, "__name__", None) or getattr(value, "name", None) or value
    return re.sub(r"[_\s]+", " ", str(value)).replace("|", "or").strip()


def words(given: dict[str, Any], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(said(name, given[name]) for name in names)


Cells = dict[tuple[tuple[str, ...], tuple[str, ...]], str]
"""What came out, by the words of a row and of a column."""


def cells(tables: list[Table], results: Results) -> Cells:
    """Tables of one title as one."""
    found: Cells = {}
    for table in tables:
        for given, result in results.of(table.test):
            place = words(given, table.rows), words(given, table.columns)
            # Of several tests of one cell, the worst is what came out.
            if found.get(place, "=") == "=":
                found[place] = table.passed if result == "=" else result
    return found


def grouped(names: list[tuple[str, ...]]) -> str:
    """Names one after the other, those that begin alike together."""
    by_first: dict[str, list[str]] = {}
    for first, *others in names:
        by_first.setdefault(first, []).append(", ".join(others))
    return "; ".join(
        f"{first} ({', '.join(parts)})" if any(parts) else first
        for first, parts in by_first.items()
    )


def what(found: Cells) -> str:
    """The rows in words."""
    return grouped(list(dict.fromkeys(row for row, _ in found)))


def section(title: str, says: str, found: Cells, first: Mapping[str, str]) -> list[str]:
    """A table in words: rows, columns, and the cells in which it does not hold.

    `first` has the title under which rows stand first: under a later one only that
    title is written.
    """
    rows = list(dict.fromkeys(row for row, _ in found))
    columns = list(dict.fromkeys(column for _, column in found))
    stand = first[what(found)]
    told = what(found) if stand == title else f'as in "{stand}"'
    parts = [f"**What**: {told}."]
    if columns != [()]:
        parts.append(f"**By**: {grouped(columns)}.")
    others: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for row in rows:
        here = {column: found.get((row, column), "not asked") for column in columns}
        for result in dict.fromkeys(r for r in here.values() if r != "="):
            where = [column for column in columns if here[column] == result]
            others.setdefault((result, grouped(where)), []).append(row)
    for (result, where), of_rows in others.items():
        parts.append(f"**{result.capitalize()}**, {where}: {grouped(of_rows)}.")
    head = [f"## {title}", "", f"{says[0].upper()}{says[1:]}.", ""]
    for part in parts:
        head += [*textwrap.wrap(part, 120, break_on_hyphens=False), ""]
    return head


def listed(file: str, title: str, results: Results) -> list[str]:
    """A list of a file's tests, those of one name together."""
    cases: dict[str, list[str]] = {}
    for name, result in results.found.items():
        if name.startswith(f"{file}::"):
            test, _, case = name.rpartition("::")[2].partition("[")
            case = case.removesuffix("]") + ("" if result == "=" else f" ({result})")
            cases.setdefault(test.removeprefix("test_"), []).append(case)
    lines = [f"## {title}", ""]
    for test, of_test in cases.items():
        told = ", ".join(case for case in of_test if case)
        lines.append(f"- {test.replace('_', ' ')}" + (f": {told}" if told else ""))
    return [*lines, ""]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", default="", metavar="WORDS")
    only = parser.parse_args().only.lower()
    tables = [t for t in (*JAX, *TORCH, *STORES, *NATIVE) if only in t.title.lower()]
    lists = [(file, title) for file, title in LISTS if only in title.lower()]
    results = Results()
    asked = [t.test for t in tables] + [file for file, _ in lists]
    told = io.StringIO()
    with contextlib.redirect_stdout(told):
        options = ["-q", "-p", "no:cacheprovider", "--rootdir", str(ROOT)]
        status = pytest.main([*options, *(str(ROOT / a) for a in asked)], [results])
    if status not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        sys.exit(told.getvalue())
    versions = ", ".join(
        f"{name} {importlib.metadata.version(name)}"
        for name in ("jax", "torch", "numpy")
    )
    print(HEAD.format(versions=versions))
    by_title: dict[str, list[Table]] = {}
    for table in tables:
        by_title.setdefault(table.title, []).append(table)
    found = {title: cells(same, results) for title, same in by_title.items()}
    first = {what(found[title]): title for title in reversed(found)}
    for title, same in by_title.items():
        print("\n".join(section(title, same[0].says, found[title], first)))
    for file, title in lists:
        print("\n".join(listed(file, title, results)))
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main())

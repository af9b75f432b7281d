"""Tests speak of what users call, or of a seam that is listed here.

A rebuilding of the inside must leave the tests as they are, so no test imports a
private module or name of Retape, or replaces one while it runs, but for those below.
Private is what has a leading underscore in its dotted name.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.sources import parsed, statements, without_collector

ROOT = Path(__file__).resolve().parent
MOST_IMPORTS = 60

SEAMS = {
    # What the page "How to add a plan" tells its reader to write.
    "retape.plan._support": "who obeys which plan",
    "retape.plan._parse": "all plans, and plans as text",
    # Building, loading and keeping machine code, for both engines that have some.
    "retape._native_code": "compilers, caches and locks of objects",
    "retape.engines.eager.native._accelerate": "what is built for PyTorch",
    "retape.engines.vlad.compiler.load._c_compiler": "the compiler's flags",
    "retape.engines.vlad.compiler.load._native": "the size of the collector's nursery",
    # A program's machine, to be asked the laws of `check_machine`.
    "retape.engines.vlad.session._engines": "engines by name",
    # The compiler of VLAD: programs, forms, their checker and printer.
    "retape.engines.vlad.compiler._pipeline": "passes, one by one",
    "retape.engines.vlad.compiler.ir._check": "the checker of the form",
    "retape.engines.vlad.compiler.ir._ir": "the form",
    "retape.engines.vlad.compiler.ir._pretty": "its text",
    "retape.engines.vlad.evaluators": "the interpreter, for the paper's figures",
    "retape.engines.vlad.operators": "the table of operators, and a row that is added",
    "retape.engines.vlad.language._program": "a program that was read",
    "retape.engines.vlad.values": "values of the language, its reals and walks",
    # The pipeline of JAX: passes, forms, their printers; all by one module of tests,
    # `engines/jaxpr/support/seams.py`, whose functions a rebuilding keeps.
    "retape.engines.jaxpr._pipeline": "passes, one by one, and a lie in each",
    "retape.engines.jaxpr.ir._ir": "the form",
    "retape.engines.jaxpr.ir._pretty": "its text",
    "retape.engines.jaxpr.codegen._pretty": "the text of places and tapes",
    "retape.engines.jaxpr.jaxprs._primitive_table": "against JAX's own rules",
    "retape.engines.jaxpr.xla._single_kernel": "what the CPU compiles as one kernel",
    # Choices of the JAX engine, against brute force.
    "retape.engines.jaxpr.codegen._min_cut": "tapes, by all sets of values",
    "retape.engines.jaxpr.codegen._split_blocks": "cuts of a block, by all of them",
    "retape.engines.jaxpr.control._numbers": "traced splits, by the schedule's",
    "retape.schedule._split": "the rules that both are written in",
    "retape.engines.jaxpr.sizing": "small programs are dealt with as large ones",
    "retape.engines.jaxpr.layers.loops._segment_lengths": "nests, by all of them",
    "retape.engines.jaxpr.layers.remat._choose_segments": "segments, by all of them",
    "retape.engines.jaxpr.layers.remat._flat_program": "what they are cut from",
    # Planning for PyTorch: oracles by brute force, and what is forgotten between tests.
    "retape.engines.eager.analysis._operator_cost": "against PyTorch's own counter",
    "retape.engines.eager.compiled": "joint graphs and all their plans by brute force",
    "retape.engines.eager.plan._dynamic_programme": "the oracle of plans",
    "retape.engines.eager.plan._book": "plans are forgotten between tests",
    "retape.engines.eager.trace._operator_traits": "against PyTorch's schemas",
    # Devices, containers and processes that are not here.
    "retape.engines.eager._limits": "a container's limit",
    "retape.engines.eager.keep._copies": "a device that copies by itself",
    "retape.storage._trees._tensors": "a tensor of a device that is missing",
    "retape.storage._sharded": "threads in the place of processes",
    "retape.storage._codec": "files that another process wrote",
    "retape.storage._run_directory": "a disk that fails",
    "retape._forked._machine": "the process that is killed",
    "retape.cli._main": "the command, in this process",
    "retape.cli._doctor": "looks that fail",
    "retape._extras": "where the package lies, and what is not installed",
}
"""Private modules that tests may import, each with what it is a seam for."""

PATCHED = {
    "clocks, and what a run does in one go": (
        "retape.driver._progress.monotonic",
        "retape.driver._loop.perf_counter",
        "retape.driver._resume.perf_counter",
        "retape.engines.jaxpr.sweep._sweep.LONGEST_GO",
        "retape.engines.jaxpr.sweep._device_sweep.LONGEST_GO",
    ),
    "what is installed, and where": (
        "retape._extras.", "retape.cli._doctor.", "retape.storage._codecs._packers.",
    ),
    "compilers, caches and machines": (
        "retape._native_code.", "retape.engines.vlad.compiler.load.",
    ),
    "devices, containers and processes": (
        "retape.engines.eager._limits.", "retape.engines.eager.keep.",
        "retape._forked.", "retape.engines.jaxpr.sizing._cost_model.CACHE",
        "retape.engines.jaxpr.primitives._host_buffer.HOST",
    ),
    "passes that lie, and how finely they cut": (
        "retape.engines.jaxpr._pipeline.",
        "retape.engines.jaxpr.sizing._cost_model._FEW_OPERATIONS",
    ),
    "disks and other processes' files": (
        "retape.storage._run_directory.", "retape.storage._sharded.",
        "retape.storage._codec.FORMAT",
    ),
    "faults put in, and machines caught, where nothing public stands in between": (
        "retape.driver._steps._step_machine.copy_tree",
        "retape.driver._early_end._PART",
        "retape.engines.vlad.session.", "retape.engines.jaxpr.api._hosted.run",
        "retape._adjoint_arguments.run", "retape.cli._plan.run",
        "retape.plan._budget_search.optimal_advances",
        "retape.engines.vlad.values._versioned_arrays.Array.__init__",
    ),
}  # fmt: skip
"""Private names that tests may replace, by the reason."""


def is_private(dotted: str) -> bool:
    return dotted.startswith("retape.") and "._" in dotted.removesuffix(".__all__")


def imports(tree: ast.AST) -> list[str]:
    """The private names and modules that a program imports, one for each statement."""
    found: list[str] = []
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found += [a.name for a in node.names if is_private(a.name)]
        elif isinstance(node, ast.ImportFrom) and node.module:
            if is_private(node.module):
                found.append(node.module)
            else:
                names = [f"{node.module}.{a.name}" for a in node.names]
                found += [name for name in names if is_private(name)]
    return found


def patches(tree: ast.AST) -> list[str]:
    """The private names that a program replaces by `monkeypatch.setattr`."""
    modules = aliases(tree)
    found: list[str] = []
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "setattr" or not node.args:
            continue
        target, *rest = node.args
        if isinstance(target, ast.Constant):
            found.append(str(target.value))
        elif rest:
            head, *inner = ast.unparse(target).split(".")
            name = rest[0].value if isinstance(rest[0], ast.Constant) else "*"
            found.append(".".join([modules.get(head, head), *inner, str(name)]))
    return [name for name in found if is_private(name)]


def aliases(tree: ast.AST) -> dict[str, str]:
    """What the imported names of a program stand for."""
    found: dict[str, str] = {}
    for node in statements(tree):
        if isinstance(node, ast.Import):
            found |= {a.asname or a.name: a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            found |= {a.asname or a.name: f"{node.module}.{a.name}" for a in node.names}
    return found


@cache
def programs() -> dict[str, ast.AST]:
    with without_collector():
        return {
            str(path.relative_to(ROOT)): parsed(path)
            for path in sorted(ROOT.rglob("*.py"))
        }


def through(seams: Iterable[str], name: str) -> bool:
    return any(name == seam or name.startswith(f"{seam}.") for seam in seams)


def unlisted(strange: list[str], table: str) -> str:
    told = "Ask it through what users call, or list it here with the reason, in"
    return "\n".join([f"{told} `{table}`:", *strange])


def test_private_modules_are_imported_through_seams_only() -> None:
    found = [(p, name) for p, tree in programs().items() for name in imports(tree)]
    strange = [f"{path}: {name}" for path, name in found if not through(SEAMS, name)]
    assert not strange, unlisted(strange, "SEAMS")
    assert len(found) <= MOST_IMPORTS


def test_private_names_are_replaced_for_listed_reasons_only() -> None:
    listed = tuple(start for starts in PATCHED.values() for start in starts)
    found = [(p, name) for p, tree in programs().items() for name in patches(tree)]
    strange = [f"{path}: {name}" for path, name in found if not name.startswith(listed)]
    assert not strange, unlisted(strange, "PATCHED")
    names = [name for _, name in found]
    assert all(any(n.startswith(start) for n in names) for start in listed)


def test_every_seam_is_used_and_the_judges_use_none() -> None:
    used = {name for tree in programs().values() for name in imports(tree)}
    assert all(any(through([seam], name) for name in used) for seam in SEAMS)
    judges = {p: t for p, t in programs().items() if p.startswith("judges")}
    assert judges and not any(imports(t) or patches(t) for t in judges.values())


def test_the_check_sees_what_it_forbids() -> None:
    tree = ast.parse(
        "import retape.plan._base\n"
        "from retape.storage import _run_directory as lock, DiskStore\n"
        "from retape.driver._loop import obey\n"
        "monkeypatch.setattr(lock, 'CLOCK', 1)\n"
        "monkeypatch.setattr('retape.driver._clock.now', 1)\n"
        "monkeypatch.setattr(retape.jax, '_hidden', 1)\n"
        "monkeypatch.setattr(lock.held, name, 1)\n"
        "monkeypatch.setattr(torch, '_hidden', 1)\n"
    )
    assert imports(tree) == [
        "retape.plan._base", "retape.storage._run_directory", "retape.driver._loop"
    ]  # fmt: skip
    assert patches(tree) == [
        "retape.storage._run_directory.CLOCK",
        "retape.driver._clock.now",
        "retape.jax._hidden",
        "retape.storage._run_directory.held.*",
    ]

"""Hints to install what is missing: the command names an extra that has it."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import sys
from typing import Any

import numpy as np

import retape
from tests.hints.processes import alone
from tests.hints.rows import Row, installs, without


def old_jax() -> str:
    """What `retape.jax` says to a release of JAX that it was not made for."""
    return alone(
        "import jax\n"
        "jax.__version__, jax.__version_info__ = '0.9.2', (0, 9, 2)\n"
        "try:\n    import retape.jax\n"
        "except ImportError as error:\n    print(error)\n"
    )


def doctor(monkeypatch: Any, capsys: Any, folder: Any) -> str:
    """What `retape doctor` prints on a machine without compilers."""
    from retape.cli import main

    monkeypatch.setenv("PATH", str(folder))
    for name in ("CC", "CXX"):
        monkeypatch.delenv(name, raising=False)
    main(["doctor"])
    return capsys.readouterr().out


ROWS = [
    Row("Run `{}`", "old_jax()", "'jax' in installs('''THE_CODE''')"),
    Row(
        "Run `{}`",
        "without(monkeypatch, 'optimistix')\n"
        "for name in [n for n in sys.modules if n.startswith('retape.optimistix')]:\n"
        "    monkeypatch.delitem(sys.modules, name)\n"
        "import retape.optimistix",
        "'optimistix' in installs('''THE_CODE''')",
    ),
    Row(
        "Run `{}`",
        "without(monkeypatch, 'ziglang')\ndoctor(monkeypatch, capsys, tmp_path)",
        "'ziglang' in installs('''THE_CODE''')",
        slow=True,
    ),
]

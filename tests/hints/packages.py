"""Hints to install what is missing: the command names an extra that has it."""

# ruff: noqa: F401 - the statements of the rows use what is imported

import sys
from typing import Any

import numpy as np

import retape
from tests.hints.processes import alone
from tests.hints.rows import installs, rows, without


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


ROWS = rows(
    "True",
    r"""
old_jax()
says: Run `{}`
'jax' in installs('''THE_CODE''')

without(monkeypatch, 'optimistix')
for name in [n for n in sys.modules if n.startswith('retape.optimistix')]:
    monkeypatch.delitem(sys.modules, name)
import retape.optimistix
says: Run `{}`
'optimistix' in installs('''THE_CODE''')

without(monkeypatch, 'ziglang')
doctor(monkeypatch, capsys, tmp_path)
slow says: Run `{}`
'ziglang' in installs('''THE_CODE''')
""",
)

"""What each pass makes of small programs, as text.

`golden/PASS.txt` has the cases of a pass: a program's source, then the text of what the
pass makes of it. After a change that is meant, run this file as a program, which writes
the texts anew, and read the difference.

    [case a name]
    source, which defines `program`, its arguments `types`, perhaps `piece`, and
    perhaps `around`, which calls what it is given where the program is traced
    [out]
    text
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from tests.engines.jaxpr.support import seams

FOLDER = Path(__file__).with_name("golden")
CASE = re.compile(r"\[case ([^\n]*)\]\n(.*?)\[out\]\n(.*?)(?=\[case |\Z)", re.DOTALL)


def cases() -> list[tuple[str, str, str, str]]:
    """Pass, name, source and expected text of every case."""
    found: list[tuple[str, str, str, str]] = []
    for file in sorted(FOLDER.glob("*.txt")):
        found += [(file.stem, *case) for case in CASE.findall(file.read_text())]
    return found


def shown(stage: str, source: str) -> str:
    """The text of what a pass makes of a program."""
    texts: list[str] = []
    with jax.enable_x64(True):
        scope: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": lax}
        exec(source, scope)
        options = {k: scope[k] for k in ("piece", "grain") if k in scope}

        def run(*types: Any) -> Any:
            form = seams.form_after(stage, scope["program"], *types, **options)
            texts.append(seams.text(form))
            return types[-1]

        around = scope.get("around", lambda run: run(*scope["types"]))
        around(run)
    return texts[-1] + "\n"


@pytest.mark.release
@pytest.mark.parametrize(
    ("stage", "source", "text"),
    [
        pytest.param(stage, source, text, id=f"{stage}: {title}")
        for stage, title, source, text in cases()
    ],
)
def test_a_pass_makes_this_of_the_program(stage, source, text):
    assert shown(stage, source) == text.rstrip() + "\n"


def test_every_pass_has_a_case():
    assert set(seams.passes()) <= {stage for stage, *_ in cases()}


def write() -> None:
    """Write the texts anew."""
    for file in sorted(FOLDER.glob("*.txt")):
        parts = [
            f"[case {title}]\n{source}[out]\n{shown(file.stem, source)}"
            for title, source, _ in CASE.findall(file.read_text())
        ]
        file.write_text("\n".join(parts))


if __name__ == "__main__":
    write()

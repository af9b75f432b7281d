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
from jax.extend import core

from retape.engines.jaxpr._pipeline import compile_program
from retape.engines.jaxpr.codegen._pretty import pretty_layout, pretty_tape
from retape.engines.jaxpr.ir._ir import Program
from retape.engines.jaxpr.ir._pretty import pretty

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
    texts: dict[str, str] = {}
    with jax.enable_x64(True):
        scope: dict[str, Any] = {"jax": jax, "jnp": jnp, "lax": lax}
        exec(source, scope)

        def run(*types: Any) -> Any:
            jaxpr = jax.make_jaxpr(scope["program"])(*types)
            active = [jnp.issubdtype(v.dtype, jnp.inexact) for v in jaxpr.in_avals]
            compile_program(
                jaxpr,
                active,
                piece=scope.get("piece"),
                grain=scope.get("grain", 0),
                watch=lambda name, output: texts.update({name: text_of(output)}),
            )
            return types[-1]

        around = scope.get("around", lambda run: run(*scope["types"]))
        around(run)
    return texts[stage] + "\n"


def text_of(output: Any) -> str:
    match output:
        case core.ClosedJaxpr():
            return "\n".join(outline(output.jaxpr))
        case Program():
            return pretty(output)
        case (Program() as program, layout):
            return pretty_layout(program, layout)
        case _ if all(hasattr(v, "halves") for v in output.values()):
            return pretty_tape(output)
        case _:
            blocks = output.values()
            return "\n".join(
                f"block {c.number}: {' '.join(map(name, c.jaxpr.eqns)) or 'nothing'}"
                for c in blocks
            )


def outline(jaxpr: Any, margin: str = "") -> list[str]:
    """Names of operations, those of inner programs below: JAX's text changes."""
    lines: list[str] = []
    for eqn in jaxpr.eqns:
        length = eqn.params.get("length")
        lines.append(margin + name(eqn) + (f" {length} times" if length else ""))
        for inner in core.jaxprs_in_params(eqn.params):
            lines += outline(getattr(inner, "jaxpr", inner), margin + "  ")
    return lines


def name(eqn: Any) -> str:
    return eqn.primitive.name


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
    told: set[str] = set()
    jaxpr = jax.make_jaxpr(lambda x: jnp.sin(x))(1.0)
    compile_program(jaxpr, [True], piece=1, watch=lambda name, _: told.add(name))
    assert told <= {stage for stage, *_ in cases()}


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

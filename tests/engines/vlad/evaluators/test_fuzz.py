"""Generated programs: the three implementations agree, and with finite differences."""

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from retape import logarithmic
from tests.engines.vlad.support.cases import program
from tests.engines.vlad.support.seams import engine_of

PRELUDE, _, MADE_OF = program("fuzz").partition("; #")
TEMPLATES = [line for line in MADE_OF.splitlines() if line.startswith("(")]


@st.composite
def expressions(draw: st.DrawFn, variables: tuple[str, ...], depth: int) -> str:
    """A real-valued expression over variables; its derivatives are modest."""
    leaves = [*variables, *(f"{n}" for n in (0.5, 1, -0.3, 2))]
    if depth == 0:
        return draw(st.sampled_from(leaves))
    template = draw(st.sampled_from(TEMPLATES))
    text, _, kind = template.partition("|")
    bound = f"v{depth}"
    parts = [draw(expressions(variables, depth - 1)) for _ in range(3)]
    parts.append(draw(expressions((*variables, bound), depth - 1)))
    if kind == "sum":
        return "(sum " + text.format(*parts) + ")"
    if kind:
        return f"(* 0.1 ({kind} (lambda ({bound}) {parts[3]}) {parts[0]}))"
    return text.format(*parts).replace("%", bound)


@st.composite
def programs(draw: st.DrawFn, count: int) -> list[str]:
    return [
        draw(expressions(("x", "y"), draw(st.integers(1, 3)))) for _ in range(count)
    ]


AT = "(cons 0.4 -0.7)"


def _text(bodies: list[str]) -> str:
    lines = [PRELUDE]
    for i, body in enumerate(bodies):
        lines.append(f"(define (f{i} x y) {body})")
    for i in range(len(bodies)):
        lines.append(f"(*j f{i} {AT} 1)")
        lines.append(f"(checkpoint-*j f{i} {AT} 1)")
        lines.append(f"(j* f{i} {AT} (cons 1 0))")
        lines.append(f"(j* f{i} {AT} (cons 0 1))")
        lines.extend(
            f"(cons (f{i} (+ 0.4 {h}) -0.7) (f{i} 0.4 (+ -0.7 {h})))"
            for h in (1e-5, -1e-5, 2e-5, -2e-5)
        )
    return "\n".join(lines)


def _engine(name: str, text: str) -> Any:
    return engine_of(name, text, logarithmic(stage=40))


def _close(a: float, b: float, tolerance: float) -> bool:
    if math.isnan(a) or math.isnan(b) or math.isinf(a) or math.isinf(b):
        return True
    return abs(a - b) <= tolerance * (1 + abs(a) + abs(b))


def _check_one(name: str, engine: Any, index: int) -> list[float]:
    """One function under one engine: all derivatives agree; returns them."""
    base = 8 * index
    results = [engine.evaluate(base + i)[0] for i in range(8)]
    (value, (dx, dy)), (value_c, (dx_c, dy_c)), (value_x, tx), (value_y, ty) = results[
        :4
    ]
    assert value == value_c == value_x == value_y or value != value
    for a, b in ((dx, dx_c), (dy, dy_c), (dx, tx), (dy, ty)):
        assert _close(a, b, 1e-9), (name, index)
    for axis, gradient in ((0, dx), (1, dy)):
        near = (results[4][axis] - results[5][axis]) / 2e-5
        far = (results[6][axis] - results[7][axis]) / 4e-5
        if _close(near, far, 1e-7):  # no corner lies between
            assert _close(gradient, near, 1e-5), (name, index)
    return [value, dx, dy]


def _agree(bodies: list[str], *names: str) -> None:
    """Two implementations have the same derivatives, and as many steps."""
    text = _text(bodies)
    engines = {name: _engine(name, text) for name in names}
    for index in range(len(bodies)):
        first, second = (
            _check_one(name, engine, index) for name, engine in engines.items()
        )
        assert all(_close(a, b, 1e-12) for a, b in zip(first, second, strict=True))
        steps = {each.evaluate(8 * index + 4)[1] for each in engines.values()}
        assert len(steps) == 1


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(programs(count=2))
def test_the_interpreter_and_the_hybrid_agree(bodies: list[str]) -> None:
    _agree(bodies, "interpreter", "hybrid")


@pytest.mark.slow
@settings(
    max_examples=3,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],  # shrinking would compile a hundred programs
)
@given(programs(count=6))
def test_the_compiler_agrees_with_the_interpreter(bodies: list[str]) -> None:
    _agree(bodies, "interpreter", "compiled")


def test_the_oracle_notices_a_wrong_derivative() -> None:
    assert not _close(1.0, 1.001, 1e-5)
    assert _close(1.0, 1.0 + 1e-7, 1e-5)

"""The general form of typed functions, which is compiled when a run first needs it."""

import math
from typing import Any

import pytest

from retape import UnsupportedError, _native_code, logarithmic, native
from retape.engines.vlad.compiler.emit import _emit, _parts
from retape.engines.vlad.language._diagnostics import RunError


def swing(x: float, r: float, steps: int) -> float:
    for _ in range(steps):
        x = r * math.sqrt(x) * (1.0 - x)
    return x


def deep(x: float, steps: int) -> float:
    return x if steps == 0 else math.sin(deep(x * 0.99, steps - 1)) + x


def _native(made: Any) -> Any:
    """The loaded program of something that was called."""
    (each,) = made._made.values()
    return each.engine.native


def _fault(call: Any, *args: Any) -> str:
    with pytest.raises(RunError) as caught:
        call(*args)
    return str(caught.value).split("  called from")[0].strip()


@pytest.mark.parametrize("make", [native.function, native.grad])
def test_the_general_form_is_compiled_for_the_first_fault(make: Any) -> None:
    plan = {} if make is native.function else {"plan": logarithmic(stage=100)}
    compiled, exact = make(swing, **plan), make(swing, engine="interpreter", **plan)
    before = compiled(0.3, 2.0, 50)
    assert _native(compiled)._later_object is None
    assert math.isclose(before, exact(0.3, 2.0, 50), rel_tol=1e-12)
    message = _fault(compiled, -0.3, 2.0, 50)
    assert message == _fault(exact, -0.3, 2.0, 50)
    assert "math.sqrt" in message
    loaded = _native(compiled)._later_object
    assert loaded is not None
    assert compiled(0.3, 2.0, 50) == before
    assert _fault(compiled, -0.3, 2.0, 50) == message
    assert _native(compiled)._later_object is loaded


def test_states_that_typed_code_leaves_go_on_in_the_general_form() -> None:
    """A deep recursion, whose states share the frames that they have in common."""
    gradient = native.grad(deep, plan=logarithmic(stage=2_000))
    whole = native.grad(deep)(0.5, 3_000)
    assert math.isclose(gradient(0.5, 3_000), whole, rel_tol=1e-12)
    assert _native(gradient)._later_object is not None


def test_forward_mode_and_values_that_are_no_reals_need_it_at_once() -> None:
    def pair(x: float) -> tuple[float, float]:
        return x, 2.0 * x

    both = native.function(pair)
    assert both(1.5) == (1.5, 3.0)
    assert not _native(both).compiled.later
    tangent = native.jvp(lambda x: swing(x, 2.0, 9), (0.3,), (1.0,))[1]
    assert math.isclose(tangent, native.grad(swing)(0.3, 2.0, 9), rel_tol=1e-12)


def test_in_many_parts_the_faults_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def spread(x: float) -> float:
        return swing(x, 2.0, 5) + deep(x, 7) + swing(x - 0.5, 2.0, 3)

    exact = native.grad(spread, engine="interpreter")
    monkeypatch.setattr(_parts, "PART_TERMS", 5)
    monkeypatch.setattr(_emit, "PART_TERMS", 5)
    gradient = native.grad(spread)
    assert math.isclose(gradient(0.7), exact(0.7), rel_tol=1e-12)
    assert _native(gradient).compiled.later.count("static int part_") > 2
    assert _fault(gradient, 0.3) == _fault(exact, 0.3)


def test_a_compiler_that_fails_then_is_told_of_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def root(x: float) -> float:
        return math.sqrt(x) + 41.5

    compiled = native.function(root)
    assert compiled(4.0) == 43.5

    def no_compiler(*_: object, **__: object) -> bytes:
        raise UnsupportedError("no C compiler")

    build = _native_code.build
    monkeypatch.setattr(_native_code, "build", no_compiler)
    with pytest.raises(UnsupportedError, match="no C compiler"):
        compiled(-4.0)
    assert compiled(9.0) == 44.5
    monkeypatch.setattr(_native_code, "build", build)
    assert "math.sqrt" in _fault(compiled, -4.0)

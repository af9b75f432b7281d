"""Cotangents that are no numbers: of infinite adjoints, or of a skipped zero."""

import math
import re

import pytest

from retape import native
from retape.engines.vlad.session._engines import EngineName
from tests.engines.vlad.support.cases import ENGINES


def chaotic(x, r, steps):  # type: ignore[no-untyped-def]
    """An adjoint that overflows; what it is multiplied by never does."""
    for _ in range(steps):
        x = r * x * (1.0 - x)
    return x


def clipped(x, z):  # type: ignore[no-untyped-def]
    """Where x * x is infinite, the adjoint of the product is zero."""
    return min(x * x * z, 1.0) + 0.0 * z


def rooted(x, z):  # type: ignore[no-untyped-def]
    return min(math.sqrt(x) * z + 2.0, 1.0)


def scaled(x):  # type: ignore[no-untyped-def]
    return min(x * math.inf + 5.0, 1.0)


@pytest.mark.parametrize("engine", ENGINES)
def test_infinite_adjoints_are_no_numbers_in_typed_code_too(engine: EngineName) -> None:
    gradient = native.grad(chaotic, (0, 1), engine=engine)
    assert all(map(math.isfinite, gradient(0.3, 3.9, 1_400)))
    assert all(map(math.isnan, gradient(0.3, 3.9, 3_000)))
    if engine == "compiled":
        (made,) = gradient._made.values()
        done = made.engine.native.typed_stages()  # type: ignore[attr-defined]
        assert done == (2, 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_adjoint_of_zero_is_not_multiplied_by_an_infinite_partial(
    engine: EngineName,
) -> None:
    assert native.grad(clipped, (0, 1), engine=engine)(1e200, 2.0) == (0.0, 0.0)
    assert native.grad(rooted, (0, 1), engine=engine)(0.0, 2.0) == (0.0, 0.0)
    assert native.grad(scaled, engine=engine)(3.0) == 0.0


def largest(gradient, *args) -> float:  # type: ignore[no-untyped-def]
    """Below what no partial is infinite."""
    gradient(*args)
    (made,) = gradient._made.values()
    text = made.engine.native.compiled.text
    (found,) = re.findall(r"typed_largest = (\S+);", text)
    return float.fromhex(found)


def test_what_is_computed_again_says_how_large_its_operands_may_be() -> None:
    def line(x, y):  # type: ignore[no-untyped-def]
        return x * y

    def cube(x, y):  # type: ignore[no-untyped-def]
        return math.sin(3.0 * x * x) * y

    def root(x, y):  # type: ignore[no-untyped-def]
        return math.sqrt(x) * y

    def infinite(x, y):  # type: ignore[no-untyped-def]
        return x * math.inf + y

    assert largest(native.grad(line), 1.0, 2.0) == 2.0**1000
    assert largest(native.grad(cube), 1.0, 2.0) == 2.0**499  # 3 x^2, of two more bits
    assert largest(native.grad(root), 1.0, 2.0) == 0.0
    assert largest(native.grad(infinite), 1.0, 2.0) == 0.0

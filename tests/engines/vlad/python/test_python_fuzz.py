"""Generated Python functions: what is compiled does what Python does, or refuses."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from retape import fixed_space, native
from tests.engines.vlad.support.random_functions import (
    ARRAYS,
    NUMBERS,
    functions_of,
)


def _outcome(f: Any, args: tuple) -> Any:
    try:
        return f(*args)
    except (ZeroDivisionError, OverflowError, ValueError, native.RunError) as error:
        return "stops" if not isinstance(error, native.CompileError) else error


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return a == b
    pairs = zip(a, b, strict=True)
    return all(math.isclose(x, y, rel_tol=1e-12, abs_tol=1e-300) for x, y in pairs)


ARGUMENTS = [(0.3, -1.7, 3), (2.5, 0.0, 8)]


@pytest.mark.slow("interpreter-seeds0")
@pytest.mark.parametrize(
    ("engine", "seeds"),
    [("interpreter", range(150)), ("hybrid", range(150, 180)), ("compiled", range(3))],
)
def test_generated_functions_do_what_python_does(
    engine: Any, seeds: range, tmp_path: Path
) -> None:
    module = functions_of(tmp_path, seeds, NUMBERS)
    for seed in seeds:
        f = getattr(module, f"f{seed}")
        compiled = native.function(f, engine=engine)
        for args in ARGUMENTS:
            expected = _outcome(f, args)
            assert _same(_outcome(compiled, args), expected), (seed, args, expected)


def test_gradients_of_generated_functions_are_those_of_forward_mode(
    tmp_path: Path,
) -> None:
    module = functions_of(tmp_path, range(200, 240), NUMBERS)
    x, y = 0.31, -1.7
    taken = 0
    for seed in range(200, 240):
        f = getattr(module, f"first{seed}")
        if _outcome(f, (x, y)) == "stops":
            continue
        taken += 1
        gradient = native.grad(f, (0, 1), engine="interpreter")(x, y)
        for part, along in zip(gradient, ((1.0, 0.0), (0.0, 1.0)), strict=True):
            _, tangent = native.jvp(f, (x, y), along, engine="interpreter")
            assert part == pytest.approx(tangent, rel=1e-9, abs=1e-12), seed
    assert taken > 25


def _of_size(n: int, seed: int) -> tuple[Any, ...]:
    random = np.random.default_rng(seed)
    matrix = 0.5 * random.standard_normal((n, n))
    return 0.31 + n, random.standard_normal(n), matrix, n


def _flat(value: Any) -> np.ndarray:
    parts = value if isinstance(value, tuple) else (value,)
    return np.concatenate([np.ravel(part) for part in parts])


def _close(found: Any, expected: Any) -> bool:
    if isinstance(found, str) or isinstance(expected, str):
        return found is expected
    a, b = _flat(found), _flat(expected)
    size = max(1.0, np.abs(b[np.isfinite(b)]).max(initial=0.0))
    return bool(np.allclose(a, b, rtol=1e-9, atol=1e-9 * size, equal_nan=True))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("engine", "seeds"),
    [
        ("interpreter", range(20)),
        ("hybrid", range(20, 26)),
        ("compiled", range(26, 32)),
    ],
)
def test_generated_functions_of_arrays_are_those_of_numpy_with_their_gradients(
    engine: Any, seeds: range, tmp_path: Path
) -> None:
    module = functions_of(tmp_path, seeds, ARRAYS)
    finite = 0
    for seed in seeds:
        f = getattr(module, f"first{seed}")
        gradient = native.grad(f, (0, 1, 2), engine=engine)
        short = native.grad(
            f, (0, 1, 2), plan=fixed_space(snapshots=3, stage=5), engine=engine
        )
        for n in (3, 1, 9) if engine == "compiled" else (3, 1):
            given = _of_size(n, seed)
            with np.errstate(all="ignore"):
                expected = _outcome(f, given)
            found = _outcome(native.function(f, engine=engine), given)
            assert _close(found, expected), (seed, n)
            if isinstance(expected, str) or not math.isfinite(expected):
                continue
            along = _of_size(n, seed + 1)[:3]
            cotangents = gradient(*given)
            _, tangent = native.jvp(f, given, (*along, None), engine="interpreter")
            if not math.isfinite(tangent):
                continue
            finite += 1
            terms = [c * t for c, t in zip(cotangents, along, strict=True)]
            size = max(1.0, np.abs(_flat(tuple(terms))).sum())
            assert _flat(tuple(terms)).sum() == pytest.approx(tangent, abs=1e-9 * size)
            assert _close(short(*given), cotangents), (seed, n)
    assert finite > len(seeds)

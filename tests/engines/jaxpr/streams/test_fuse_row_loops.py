"""Inner loops that only write rows: part of a step where that is proved, else not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import retape
import retape.jax
from tests.engines.jaxpr.support import seams
from tests.engines.jaxpr.support.programs import Unrolled, assert_close
from tests.engines.jaxpr.support.seams import Loop, blocks_of

FEW = retape.fixed_space(snapshots=2, stage=2)
X = np.asarray([0.9, -0.4, 1.3])
TIMES = np.asarray([0.0, 0.05, 0.3, 0.31, 0.32, 0.9, 1.0])


def curve(t: Any, y: Any, slope: Any, x: Any) -> Any:
    """A row: nonlinear in all that it is made of, but for time."""
    return y * jnp.cos(x) + jnp.sin(t * slope) * y


def solved(
    loops: Any,
    x: Any,
    *,
    times: Any = TIMES,
    end: float = 1.0,
    row: Callable[..., Any] = curve,
    shape: tuple[int, ...] = (3,),
    test: Callable[..., Any] = lambda c, y: True,
    after: Callable[..., Any] = lambda t, k, rows: (k, rows),
    again: Callable[[Any], Any] = lambda carry: carry,
) -> Any:
    """Steps of uneven length; rows at the times in between."""
    times = jnp.asarray(times, x.dtype)
    n = times.shape[0]

    def step(c: Any) -> Any:
        t, y, k, rows = c
        slope = x * jnp.cos(y) - 0.3 * y
        then = t + 0.1 + 0.3 * jnp.abs(jnp.sin(7 * t))

        def save(s: Any) -> Any:
            k, rows = s
            return again((k + 1, rows.at[k].set(row(times[k] - t, y, slope, x))))

        def due(s: Any) -> Any:
            return (s[0] < n) & (times[jnp.minimum(s[0], n - 1)] <= then) & test(s, y)

        k, rows = loops.while_loop(due, save, (k, rows))
        k, rows = after(then, k, rows)
        return then, y + 0.2 * slope, k, rows

    start = (jnp.zeros((), x.dtype), 0.5 * x, 0, jnp.zeros((n, *shape), x.dtype))
    t, y, k, rows = loops.while_loop(lambda c: c[0] < end, step, start)
    weights = jnp.cos(jnp.arange(rows.size, dtype=x.dtype)).reshape(rows.shape)
    return jnp.sum(rows**2 * weights) + jnp.sum(y) + k


def gated(t: Any, y: Any, slope: Any, x: Any) -> Any:
    """A row of nothing where a condition fails."""
    return jnp.where(y[0] > 0.3, y * slope, x)


PROVED: dict[str, dict[str, Any]] = {
    "a row now and then": {},
    "none": {"times": [5.0, 6.0]},
    "all in one step": {"times": np.linspace(0.4, 0.41, 9)},
    "all before the end of the last step": {"times": [0.95, 0.97, 0.99, 1.0]},
    "one at every step and more": {"times": np.linspace(0.0, 1.0, 40)},
    "one": {"times": [0.5]},
    "numbers": {"row": lambda t, y, slope, x: t * jnp.vdot(y, slope), "shape": ()},
    "tables": {"row": lambda t, y, slope, x: jnp.outer(y, slope + t), "shape": (3, 3)},
    "what the data chooses": {"row": gated},
    "as long as the data says": {"test": lambda s, y: jnp.sum(jnp.sin(y)) < 1.2},
    "of what the program is given only": {"row": lambda t, y, slope, x: x * x},
    "of nothing that moves": {"row": lambda t, y, slope, x: jnp.ones(3)},
    "more are due than there is room": {"times": [0.0, 0.1, 0.2], "end": 2.0},
}


def program(fun: Callable[[Any], Any], **options: Any) -> Any:
    return seams.compiled(fun, X, **{"grain": seams.GRAIN} | options)


def blocks_in_loops(fun: Callable[[Any], Any]) -> int:
    loops = [i for i in program(fun).items if isinstance(i, Loop)]
    return sum(1 for _ in blocks_of([*loops]))


def check(fun: Callable[..., Any], plan: Any = FEW, **options: Any) -> None:
    """Value and gradient, against forward mode."""

    def looped(x: Any) -> Any:
        return fun(jax.lax, x, **options)

    found = jax.jit(retape.jax.value_and_grad(looped, plan=plan))(X)
    assert_close(found, jax.jit(lambda x: (looped(x), jax.jacfwd(looped)(x)))(X))


def test_a_snapshot_holds_what_a_step_begins_with() -> None:
    compiled = program(lambda x: solved(jax.lax, x))
    # Time and three numbers; how many rows there are; the program counter.
    assert compiled.layout.capsule_bytes() == 8 + 3 * 8 + 8 + 4
    many = program(lambda x: solved(jax.lax, x, times=np.linspace(0.0, 1.0, 999)))
    assert many.layout.capsule_bytes() == compiled.layout.capsule_bytes()
    # What the rows are made of and where they begin, however many there are.
    assert step_bytes(many) == step_bytes(compiled) < 200


def step_bytes(compiled: Any) -> int:
    """Bytes that one more step in a loop tapes."""
    return compiled.tape_bytes(100) - compiled.tape_bytes(99)


def test_a_step_is_cut_beside_its_loop() -> None:
    """Pieces of a step; no stream is a register between them."""
    compiled = program(looped, piece=1)
    assert len(compiled.code) > len(program(looped).code) + 2
    looped_code = [c for c in compiled.code.values() if not c.once]
    assert any(c.filled for c in looped_code)
    handed_on = [v.aval.shape for c in looped_code for v in c.outs]
    assert (len(TIMES), 3) not in handed_on
    with seams.finely(grain=seams.GRAIN, piece=1):
        check(solved)


def two_loops(loops: Any, x: Any) -> Any:
    """Two buffers of other shapes, filled at other times, one after the other."""
    sizes = (5, 3)
    times = [jnp.linspace(0.0, 1.0, n) for n in sizes]

    def step(c: Any) -> Any:
        t, y, (j, a), (k, b, s) = c
        slope, then = jnp.sin(x * y), t + 0.13

        def first(c: Any) -> Any:
            return c[0] + 1, c[1].at[c[0]].set(y + (times[0][c[0]] - t) * slope)

        def second(c: Any) -> Any:
            k, b, s = c
            b = b.at[k].set(jnp.outer(slope, y) * times[1][k])
            return k + 1, b, s.at[k].set(jnp.sum(y))

        def due(i: int) -> Callable[[Any], Any]:
            n = sizes[i]
            return lambda c: (c[0] < n) & (times[i][jnp.minimum(c[0], n - 1)] <= then)

        ja = loops.while_loop(due(0), first, (j, a))
        kbs = loops.while_loop(due(1), second, (k, b, s))
        return then, y + 0.1 * slope, ja, kbs

    start = (0.0, 0.5 * x, (0, jnp.zeros((5, 3))))
    start = (*start, (0, jnp.ones((3, 3, 3)), jnp.zeros(3)))
    _, y, (_, a), (_, b, s) = loops.while_loop(lambda c: c[0] < 1, step, start)
    return jnp.sum(a**2) + jnp.sum(jnp.sin(b)) + jnp.vdot(s, x) + jnp.sum(y)


REFUSED: dict[str, dict[str, Any]] = {
    "counted on behind the loop, too": {
        "after": lambda t, k, rows: (k + 1, rows.at[k].set(jnp.sin(t) + jnp.ones(3))),
        "times": np.linspace(0.0, 3.0, 12),
    },
    "added up": {
        "again": lambda c: (c[0], c[1].at[c[0] - 1].add(c[1][c[0] - 2])),
    },
    "a row that is read": {"test": lambda s, y: s[1][s[0]][0] < 9.0},
}


def carrying(loops: Any, x: Any) -> Any:
    """The inner loop goes on from what it wrote last."""

    def step(c: Any) -> Any:
        t, y, k, rows = c

        def save(s: Any) -> Any:
            k, v, rows = s
            v = 0.9 * jnp.sin(v) + x
            return k + 1, v, rows.at[k].set(v)

        k, y, rows = loops.while_loop(lambda s: s[0] < 3 * t, save, (k, y, rows))
        return t + 1, y, k, rows

    start = (1, 0.5 * x, 0, jnp.zeros((12, 3)))
    _, y, _, rows = loops.while_loop(lambda c: c[0] < 4, step, start)
    return jnp.sum(rows**2) + jnp.sum(y)


def outside(loops: Any, x: Any) -> Any:
    """It stands in no other loop."""

    def body(c: Any) -> Any:
        return c[0] + 1, c[1].at[c[0]].set(jnp.sin(x * c[0]))

    test = lambda c: jnp.sin(0.1 * c[0]) < 0.5  # noqa: E731
    return jnp.sum(loops.while_loop(test, body, (0, jnp.zeros((9, 3))))[1])


ONE_BLOCK = {name: functools.partial(solved, **given) for name, given in PROVED.items()}
ONE_BLOCK |= {"two loops in a step": two_loops, "outside of every loop": outside}
OPEN = {name: functools.partial(solved, **given) for name, given in REFUSED.items()}
OPEN["on from what it wrote last"] = carrying
OFTEN = (
    "of what the program is given only",
    "outside of every loop",
    "on from what it wrote last",
)
"""On each change; the others each night."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in OFTEN else pytest.mark.slow)
        for name in ONE_BLOCK | OPEN
    ],
)
def test_a_loop_of_rows_is_a_part_of_a_step_where_that_is_proved(name: str) -> None:
    fun = (ONE_BLOCK | OPEN)[name]
    assert (blocks_in_loops(lambda x: fun(jax.lax, x)) == 1) == (name in ONE_BLOCK)
    check(fun)


def bounded(loops: Any, x: Any, rise: int = 1) -> Any:
    """At most four rows a step, as the program's text says; or one row again."""

    def step(c: Any) -> Any:
        t, y, k, rows = c

        def save(s: Any) -> Any:
            j, k, rows = s
            return j + 1, k + rise, rows.at[k].set(y * jnp.sin(x + j))

        due = lambda s: (s[0] < 4) & (s[1] < 2 * t)  # noqa: E731
        _, k, rows = loops.while_loop(due, save, (0, k, rows))
        return t + 1, 0.9 * y + 0.1 * jnp.sin(x), k, rows

    start = (1, 0.5 * x, 0, jnp.zeros((12, 3)))
    # Until 5; but that is not proved, or the loop would be a `scan`, which stays whole.
    test = lambda c: jnp.sin(0.3 * c[0]) < 0.99  # noqa: E731
    _, y, _, rows = loops.while_loop(test, step, start)
    return jnp.sum(rows**2) + jnp.sum(y)


@pytest.mark.slow("0-False")
@pytest.mark.parametrize(("rise", "kept"), [(1, True), (0, False)])
def test_a_short_loop_is_laid_out_only_if_it_would_stay_open(
    rise: int, kept: bool
) -> None:
    fun = functools.partial(bounded, rise=rise)
    compiled = program(lambda x: fun(jax.lax, x))
    places = compiled.layout.places("register")
    shapes = [compiled.layout.avals[p].shape for p in places]
    assert ((12, 3) not in shapes) == kept
    assert blocks_in_loops(lambda x: fun(jax.lax, x)) == 1
    check(fun)


def looped(x: Any) -> Any:
    return solved(jax.lax, x)


@pytest.mark.slow
def test_a_second_derivative_by_what_the_loop_counts_with() -> None:
    """A number that the loop carries: no derivative by `x` in it, but one by `size`."""

    def fun(loops: Any, x: Any, size: Any) -> Any:
        def step(c: Any) -> Any:
            t, y, k, rows = c

            def save(s: Any) -> Any:
                time, k, rows = s
                return time + size, k + 1, rows.at[k].set(y * jnp.sin(x * time))

            due = lambda s: s[0] < t + 1  # noqa: E731
            time, k, rows = loops.while_loop(due, save, (1.0 * t, k, rows))
            return t + 1, 0.9 * y * jnp.cos(time), k, rows

        start = (1, 0.5 * x, 0, jnp.zeros((12, 3)))
        _, y, _, rows = loops.while_loop(lambda c: c[0] < 4, step, start)
        return jnp.sum(rows**2) + jnp.sum(y)

    # One block: it is the number in the loop that is tested here.
    assert blocks_in_loops(lambda x: fun(jax.lax, x, 0.4)) == 1
    way = jnp.asarray([0.3, -0.5, 0.2])
    gradient = retape.jax.grad(lambda x, s: fun(jax.lax, x, s), plan=FEW)
    mixed = retape.jax.grad(lambda s: jnp.vdot(gradient(X, s), way), plan=FEW)
    unrolled = jax.grad(lambda x, s: fun(Unrolled, x, s))
    h = 1e-6
    along = [jnp.vdot(unrolled(jnp.asarray(X), s), way) for s in (0.4 + h, 0.4 - h)]
    assert_close(jax.jit(mixed)(0.4), (along[0] - along[1]) / (2 * h), 1e-7)


@pytest.mark.slow
def test_transformations_of_the_gradient() -> None:
    gradient = retape.jax.grad(looped, plan=FEW)
    many = jnp.stack([X, 0.5 * X, X[::-1]])
    want = jnp.stack([jax.jacfwd(looped)(x) for x in many])
    assert_close(jax.jit(jax.vmap(gradient))(many), want)
    hessian = jax.jacfwd(jax.jacfwd(looped))(X)
    assert_close(jax.jit(jax.jacfwd(gradient))(X), hessian)
    way = jnp.asarray([0.3, -0.5, 0.2])
    second = retape.jax.grad(lambda x: jnp.vdot(gradient(x), way), plan=FEW)
    assert_close(jax.jit(second)(X), hessian @ way)


# Lies ------------------------------------------------------------------------------


def row_loop(made: Any) -> tuple[Any, int]:
    """The block that holds a loop of rows, and where it does."""
    for block in blocks_of(made.items):
        for i, op in enumerate(block.ops):
            if "own" in op.eqn.params:
                return block, i
    raise AssertionError("no loop is a part of a step")


def test_a_lost_cotangent_would_be_seen() -> None:
    """The gradients above differ if one row gives a little less of its cotangent."""

    def less(made: Any, *_: Any) -> None:
        block, i = row_loop(made)
        own = block.ops[i].eqn.params["own"]

        class Less:
            run = own.run

            def ruled(self, *values: Any) -> Any:
                """The same numbers; their derivative is a thousandth less."""
                found = own.ruled(*values)
                return [
                    r + 1e-3 * (jax.lax.stop_gradient(r) - r)
                    if jnp.issubdtype(r.dtype, jnp.floating)
                    else r
                    for r in found
                ]

            def __getattr__(self, name: str) -> Any:
                return getattr(own, name)

        eqn = block.ops[i].eqn
        spoilt = eqn.replace(params=eqn.params | {"own": Less()})
        block.ops[i] = replace(block.ops[i], eqn=spoilt)

    with seams.lying("fuse_row_loops", less), pytest.raises(AssertionError):
        check(solved)


def loses_an_operation(block: Any, _: int) -> None:
    block.ops.pop()


def writes_twice(block: Any, _: int) -> None:
    block.writes = [*block.writes, *block.writes]


def reads_too_early(block: Any, loop: int) -> None:
    block.ops[0] = replace(block.ops[0], ins=(block.ops[loop].outs[0],))


CAUGHT = {
    loses_an_operation: "an operation was lost",
    writes_twice: "written twice",
    reads_too_early: "before it is made",
}


@pytest.mark.parametrize("lie", CAUGHT, ids=lambda f: f.__name__)
def test_a_lie_is_caught(lie: Any) -> None:
    spoil = seams.lying("fuse_row_loops", lambda made, *_: lie(*row_loop(made)))
    with spoil, pytest.raises(AssertionError, match=CAUGHT[lie]):
        program(looped)

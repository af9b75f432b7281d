"""Snapshots in the host's memory: the marks, and what becomes of the buffers.

XLA's CPU compiler strips the marks, so that here values are compared, and the programs
for other platforms are read as text. What XLA demands of a buffer on the host, that
nothing but loops, slices and updates touches it, is checked in the program itself.
"""

import re
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.extend import core

import retape
import retape.jax
from tests.engines.jaxpr.support import seams
from tests.judges.pairwise import dealt

PLAN = retape.fixed_space(snapshots=3, stage=2, offload="host")
SAME = retape.fixed_space(snapshots=3, stage=2)
X = np.linspace(0.5, 1.5, 6).reshape(2, 3)


def scanned(x: Any) -> Any:
    # A step that tapes 32 kB: a loop of little is reversed in one piece.
    wide = np.linspace(0, 1, 4096)

    def step(v: Any, t: Any) -> tuple[Any, None]:
        return jnp.sin(v) + t * jnp.mean(jnp.cos(wide * v.sum())), None

    return lax.scan(step, x, jnp.arange(40.0) / 90)[0].sum()


def searched(x: Any) -> Any:
    shrink = lambda v: v / 1.3 + 0.05 * jnp.sin(v)  # noqa: E731
    return lax.while_loop(lambda v: v.sum() > 1, shrink, x).sum()


PROGRAMS = {"scan": scanned, "while": searched}


def gradient(name: str, plan: retape.Plan = PLAN) -> Any:
    return jax.grad(retape.jax.checkpointed(PROGRAMS[name], plan=plan))


def assert_same(a: Any, b: Any) -> None:
    np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


def forward(name: str) -> Any:
    """The same gradient by forward mode, which stores nothing."""
    return jax.jacfwd(PROGRAMS[name])


TRANSFORMED: dict[str, tuple[Any, Any]] = {
    "jit": (jax.jit, X),
    "vmap": (jax.vmap, np.stack([X, 3 * X, 9 * X])),
    "vmap of jvp": (
        lambda g: jax.vmap(lambda x: jax.jvp(g, (x,), (x,))[1]),
        np.stack([X, 4 * X]),
    ),
}


# Mapped runs of other lengths, lanes of lanes: `calls/test_batching.py`.
@pytest.mark.parametrize(
    ("how", "program"),
    [
        ("jit", "scan"),
        pytest.param("vmap", "scan", marks=pytest.mark.slow),
        pytest.param("vmap of jvp", "while", marks=pytest.mark.slow),
    ],
)
def test_gradients_are_those_of_forward_mode(how: str, program: str) -> None:
    transform, x = TRANSFORMED[how]
    assert_same(transform(gradient(program))(x), transform(forward(program))(x))


@pytest.mark.slow
def test_a_gradient_of_a_gradient_is_that_of_forward_mode() -> None:
    plan = retape.fixed_space(snapshots=2, stage=1, offload="host")

    def along(gradient: Any) -> Any:
        return lambda x: (gradient(x) * np.arange(6.0).reshape(2, 3)).sum()

    wanted = jax.jacfwd(along(forward("scan")))(X)
    assert_same(jax.grad(along(gradient("scan", plan)))(X), wanted)


@pytest.mark.slow
def test_a_run_that_is_counted_first() -> None:
    plan = retape.fixed_space(snapshots=3, stage=2, split="bisection", offload="host")
    assert_same(gradient("while", plan)(X), forward("while")(X))


def test_a_hessian_of_mapped_runs_is_refused_by_name() -> None:
    function = retape.jax.checkpointed(searched, plan=PLAN)
    with pytest.raises(retape.PlanError, match="runs differ in length, so that each"):
        jax.vmap(jax.hessian(function))(np.stack([X, 9 * X]))


# What the programs say ------------------------------------------------------------


def text(platform: str, program: str) -> str:
    found = export.export(jax.jit(gradient(program)), platforms=(platform,))(X)
    return re.sub(r" loc\(.*\)", "", found.mlir_module())


def definitions(text: str) -> dict[str, list[str]]:
    """The operations of each name; a name belongs to a region, so there are several."""
    found: dict[str, list[str]] = {}
    for name, operation in re.findall(r"(%\w+)(?::\d+)? = (.*)", text):
        found.setdefault(name, []).append(operation)
    return found


@pytest.mark.parametrize(
    ("program", "platform"), dealt(list(PROGRAMS), ["cuda", "tpu"])
)
def test_only_rows_move_between_the_memories(platform: str, program: str) -> None:
    lines = text(platform, program).splitlines()
    moves = [i for i, line in enumerate(lines) if "annotate_device_placement" in line]
    hosted = 0
    for i in moves:
        name, value = re.findall(r"(%\w+)", lines[i])[:2]
        before, after = lines[i - 1], lines[i + 1]
        if '"device"' in lines[i]:
            assert f"{value} = stablehlo.dynamic_slice" in before
            assert "tensor<1x2x3xf64>" in lines[i]
        elif "stablehlo.dynamic_update_slice" in after:
            assert f", {name}, " in after and "tensor<1x2x3xf64>" in lines[i]
        else:
            assert "stablehlo.broadcast_in_dim" in "".join(
                definitions("\n".join(lines))[value]
            )
            hosted += 1
    assert hosted == 1, "one buffer of arrays; numbers stay on the device"
    # One place that puts a row; that of a GPU gets one at its begin, after a chunk that
    # was advanced, and after a stage.
    assert len(moves) == (5 if platform == "cuda" else 3)


def test_on_the_cpu_nothing_is_marked() -> None:
    assert "annotate_device_placement" not in text("cpu", "scan")


def test_a_program_with_snapshots_on_the_host_is_no_single_kernel() -> None:
    for plan, one in ((SAME, True), (PLAN, False)):
        text = jax.jit(gradient("while", plan)).lower(X).as_text()
        # Smaller functions inside of it may be marked in either.
        outermost = text.partition("func.func private")[0]
        assert ("inlineable" in outermost) is one


def misused(jaxpr: core.Jaxpr, tainted: list[bool] | None = None) -> list[str]:
    """Operations that read a buffer on the host and may not."""
    found: list[str] = []
    _follow(jaxpr, tainted or [False] * len(jaxpr.invars), found)
    return found


def _follow(jaxpr: Any, tainted: list[bool], found: list[str]) -> list[bool]:
    on_host = {v for v, t in zip(jaxpr.invars, tainted, strict=True) if t}

    def flags(atoms: Any) -> list[bool]:
        return [isinstance(a, core.Var) and a in on_host for a in atoms]

    for eqn in jaxpr.eqns:
        name, given = eqn.primitive.name, flags(eqn.invars)
        if name in ("retape_host_store", "retape_host_allocate"):
            outs = [True]
        elif name == "retape_host_load":
            outs = [False]
        elif name == "while":
            n = eqn.params["cond_nconsts"] + eqn.params["body_nconsts"]
            consts = given[eqn.params["cond_nconsts"] : n]
            outs = given[n:]
            for _ in range(3):  # until nothing is added
                after = _follow(eqn.params["body_jaxpr"].jaxpr, consts + outs, [])
                outs = [a or b for a, b in zip(outs, after, strict=True)]
            _follow(eqn.params["body_jaxpr"].jaxpr, consts + outs, found)
        elif name in ("jit", "retape_call"):
            outs = _follow(eqn.params["jaxpr"].jaxpr, given, found)
        else:
            found.extend([name] if any(given) else [])
            outs = [False] * len(eqn.outvars)
        on_host |= {v for v, t in zip(eqn.outvars, outs, strict=True) if t}
    return flags(jaxpr.outvars)


@pytest.mark.parametrize(("program", "how"), dealt(list(PROGRAMS), ["jit", "vmap"]))
def test_only_loops_touch_a_buffer_on_the_host(how: str, program: str) -> None:
    transform, x = TRANSFORMED[how]
    jaxpr = jax.make_jaxpr(transform(gradient(program)))(jnp.asarray(x))
    assert "retape_host_store" in str(jaxpr) and "retape_host_load" in str(jaxpr)
    assert misused(jaxpr.jaxpr) == []


def test_the_check_sees_a_buffer_that_is_computed_with() -> None:
    stash = core.Primitive("retape_host_store")
    stash.def_abstract_eval(lambda row: row)

    def lie(row: Any) -> Any:
        more = lambda b: b[0].sum() < 9  # noqa: E731
        return lax.while_loop(more, lambda b: b + 1, stash.bind(row))

    assert misused(jax.make_jaxpr(lie)(X).jaxpr) == ["add"]


def test_a_sweep_inside_another_has_its_snapshots_on_the_device() -> None:
    inner = gradient("scan")
    assert "retape_host_store" in str(jax.make_jaxpr(inner)(X))
    form = seams.form_after("on_device", inner, X)
    ours = {
        "retape_host_allocate",
        "retape_host_store",
        "retape_host_load",
        "retape_host_move",
    }
    assert not ours & set(seams.operations(form))
    assert_same(core.jaxpr_as_fun(form)(X)[0], jax.grad(scanned)(X))


def test_a_device_that_does_not_reach_the_host_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "retape.engines.jaxpr.primitives._host_buffer.HOST", "elsewhere"
    )
    plan = retape.fixed_space(snapshots=4, stage=2, offload="host")
    with pytest.raises(retape.PlanError, match="needs memory of kind 'elsewhere'"):
        gradient("scan", plan)(X)


# Predictions ------------------------------------------------------------------------


def test_bytes_on_the_host_are_told_apart() -> None:
    told = retape.jax.explain(scanned, X, plan=PLAN)
    device = retape.jax.explain(scanned, X, plan=SAME)
    assert told.host_bytes == 3 * X.nbytes and device.host_bytes == 0
    assert told.peak_bytes == device.peak_bytes - told.host_bytes
    assert "144 B on the host" in str(told) and "host" not in str(device)
    assert told.prediction is not None and device.prediction is not None
    assert told.prediction.advances == device.prediction.advances
    assert told.prediction.host_bytes == 3 * told.capsule_bytes
    assert device.prediction.host_bytes is None


@pytest.mark.parametrize(("sines", "waiting"), [(1, 0), (50, 1)])
def test_the_start_of_a_stage_waits_on_the_host_too(sines: int, waiting: int) -> None:
    """A slot more while the end is unknown, as it is not if steps are counted first."""

    def fun(x: Any) -> Any:
        def step(v: Any) -> Any:
            for _ in range(sines):
                v = v / 1.3 + 0.05 * jnp.sin(v)
            return v

        return lax.while_loop(lambda v: v.sum() > 1, step, x).sum()

    told = retape.jax.explain(fun, X, plan=PLAN)
    device, slots = retape.jax.explain(fun, X, plan=SAME), told.snapshots + waiting
    marked = jax.grad(retape.jax.checkpointed(fun, plan=PLAN))
    assert f"[{slots},2,3] = retape_host_allocate" in str(jax.make_jaxpr(marked)(X))
    assert told.host_bytes == slots * X.nbytes
    assert told.peak_bytes == device.peak_bytes - told.host_bytes


def test_counts_do_not_depend_on_where_snapshots_are() -> None:
    far, near = (retape.jax.measure(scanned, X, plan=plan) for plan in (PLAN, SAME))
    assert_same(far.gradient, near.gradient)
    assert far.report.advances == near.report.advances > 0
    assert far.report.stores == near.report.stores > 0


def test_the_only_slot_is_that_of_the_start_state() -> None:
    plan = retape.fixed_space(snapshots=1, stage=4, offload="host")
    assert retape.jax.explain(scanned, X, plan=plan).host_bytes == 0
    assert_same(gradient("scan", plan)(X), jax.grad(scanned)(X))


def test_the_host_driver_keeps_them_as_arrays_of_numpy() -> None:
    seen: list[int] = []
    grad = retape.jax.grad(searched, plan=PLAN, progress=lambda p: seen.append(1))
    assert_same(grad(X), forward("while")(X))
    assert seen
    grad = retape.jax.grad(searched, plan=PLAN, store=retape.MemoryStore())
    with pytest.raises(retape.PlanError, match="where snapshots are. Pass one of them"):
        grad(X)

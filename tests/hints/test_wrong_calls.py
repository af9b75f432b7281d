"""Calls that a newcomer gets wrong: each is an error of ours, or Python's that names it.

Every line is a call of its own. What an error says to write is tried in `test_hints`,
with some thirty more such calls.
"""

# ruff: noqa: E501 - a line is a call

import contextlib
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from flax import nnx

import retape
import retape.diffrax
import retape.driver
import retape.equinox
import retape.jax
import retape.nnx
import retape.schedule
import retape.storage
import retape.torch
import retape.transformers
import retape.viz
from retape import native, vlad
from retape.schedule import Advance, Reverse, Store

OURS = {
    "PlanError": """
        retape.fixed_space(snapshots=2.5)
        retape.fixed_space(snapshots=3, stage=0)
        retape.fixed_space(snapshots=3, split="half")
        retape.fixed_space(snapshots=3, offload="gpu")
        retape.fixed_time(sweeps=-1)
        retape.within("1 XB")
        retape.within(-5)
        retape.within("0.5")
        retape.Plan(snapshots=3, memory="1 GB")
        retape.jax.grad(f, plan=retape.segments())(x)
        retape.jax.grad(f, plan=retape.tiers(memory=2, disk=2))(x)
        retape.jax.scan(turn, x, levels=0, length=3)
        retape.jax.scan(turn, x, None, length=4, levels=2, segment_length=2)
        retape.jax.scan(turn, x, length=3, levels=1.5)
        retape.jax.scan(turn, x, length=3, offload="disk")
        retape.jax.scan(turn, x, length=-2)
        retape.jax.while_loop(going, halve, x, levels=2)
        retape.jax.while_loop(going, halve, x, segment_length=4)
        retape.jax.while_loop(going, halve, x, policy=lambda *_, **__: True)
        retape.equinox.while_loop(going, halve, x, kind="cheap")
        retape.equinox.while_loop(going, halve, x, kind="checkpointed", checkpoints=3, plan=plan)
        retape.jax.grad(f, 0, plan)
        retape.jax.grad(f, 0, False, plan)
        retape.jax.grad(f, 0, False, False, plan)
        retape.jax.vjp(f, x, plan)
        retape.jax.checkpointed(plan)
        retape.jax.grad(f, plan={"snapshots": 3})
        retape.jax.value_and_grad(f, plan=3)
        retape.jax.checkpointed(f, plan=3)
        retape.jax.vjp(f, x, plan="512 MiB")
        retape.jax.explain(f, x, plan=retape.fixed_space)
        retape.jax.measure(f, x, plan="512 MiB")
        retape.jax.grad(f, loops="gpu")
        retape.jax.grad(f, loops="gpu", progress=True)
        retape.jax.measure(f, x, health=True, growth=1.0)
        retape.jax.policies.every_n(0)
        retape.jax.policies.every_n(-3)
        retape.jax.policies.within("many")
        retape.jax.policies.names(save=3)
        retape.jax.policies.names(save=[1])
        retape.jax.policies.names(save=["a"], offload=["a", "b"])
        retape.jax.checkpoint(f, policy=jax.checkpoint_policies.save_only_these_names)
        retape.jax.checkpoint(f, policy=lambda primitive: True)
        retape.jax.Checkpointed(f, policy="dots")
        retape.jax.Checkpointed(f, policy=retape.jax.policies.selective)
        retape.jax.Checkpointed(f, policy=jax.checkpoint_policies.save_only_these_names)
        retape.jax.Checkpointed(f, policy=lambda primitive: True)
        retape.jax.Checkpointed(f, policy=retape.segments())
        retape.jax.checkpoint(polizy=None)
        retape.jax.advise(f, x, memory=0)
        retape.jax.advise(f, x, memory=-5)
        retape.jax.advise(f, x, memory=True)
        retape.jax.advise(f, x, memory="much")
        retape.jax.advise(f, x, memory="1 GB", step=lambda loss, x: loss(x), donate_argnums=3)
        retape.nnx.remat_scan(turn, segment_length=0)
        retape.nnx.remat_scan(segment_length=0)
        retape.nnx.remat_scan(turn, segment_length=2.0)
        retape.nnx.remat_scan(turn, levels=2, plan=plan)
        retape.nnx.remat_scan(turn, levels=2, memory="1 GB")
        retape.nnx.remat_scan(turn, memory="much")
        retape.nnx.remat_scan(turn, offload="disk")
        retape.nnx.remat_scan(turn, policy="dots")
        retape.nnx.remat_scan(turn, transform_metadata=3)
        retape.nnx.remat_scan(turn, in_axes=[nnx.Carry, 0])
        retape.nnx.remat_scan(turn, in_axes=(nnx.Carry, "a"))
        retape.nnx.remat_scan(turn, in_axes=(nnx.Carry, {"w": 1.0}))
        retape.nnx.remat_scan(turn, in_axes=(nnx.Carry, True))
        retape.torch.recompute()
        retape.torch.recompute(memory=0.5)
        retape.torch.recompute(memory="2 XB")
        retape.torch.recompute(memory="")
        retape.torch.recompute(memory="0GB")
        retape.torch.recompute(memory=-1)
        retape.torch.recompute(memory=0)
        retape.torch.recompute(memory=float("inf"))
        retape.torch.recompute(memory=retape.logarithmic())
        retape.torch.recompute(snapshots=0)
        retape.torch.recompute(memory="1MB", stage=5)
        retape.torch.recompute(memory="1MB", stage=5, mode="loop")
        retape.torch.recompute(plan=retape.within("1MB"), stage=5)
        retape.torch.recompute(plan=retape.fixed_space(snapshots=2, stage=3), stage=5)
        retape.torch.recompute(snapshots=3, stage=0)
        retape.torch.recompute(memory="1 MB", mode="loop", verify=True)
        retape.torch.recompute(memory="1 MB", mode="loop", policy=retape.torch.names(["mlp"]))
        retape.torch.recompute(memory="1 MB")(lambda t: retape.torch.estimate(torch.sin, t))(t)
        retape.torch.recompute(memory="1 GB", snapshots=3)
        retape.torch.recompute(plan=retape.segments())
        retape.torch.recompute(memory="lots")
        retape.torch.recompute(memory="1 GB", mode="fast")
        retape.torch.recompute(memory="1 GB", policy=3)
        retape.torch.recompute(memory="1 GB")(model(t))
        retape.torch.recompute(snapshots=4, stage="x")
        retape.torch.recompute(memory="1 GB", verify="no")
        retape.torch.recompute(memory="1 GB", policy=torch.mm)(lambda: t @ t.T)()
        retape.torch.recompute(memory="1 GB", policy=torch.nn.Linear)(lambda: t @ t.T)()
        retape.torch.checkpoint(3, t)
        retape.torch.checkpoint(torch.sin, t, debug="no")
        retape.torch.checkpoint(torch.sin, t, context_fn=lambda: None, policy=[])
        retape.torch.checkpoint_sequential(model, 0, t)
        retape.torch.checkpoint_sequential(model, input=t)
        retape.torch.checkpoint_sequential(model, 1.0, t)
        retape.torch.checkpoint_sequential(model, "1", t)
        retape.torch.checkpoint_sequential([], t)
        retape.torch.checkpoint_sequential(model, 1, t, memory=100)
        retape.torch.checkpoint_sequential(model, 1, t, store="cpu")
        retape.torch.checkpoint_sequential(model, 4, t)
        retape.torch.checkpoint_sequential(model, input=t, plan=retape.schedule.Schedule(2, 1))
        retape.torch.checkpoint_sequential(model, input=t, plan=half)
        retape.torch.checkpoint_sequential(model, input=t, plan=[*half, retape.schedule.Sweep(0, 1, 0)])
        retape.torch.checkpoint_sequential(model, input=t, plan=[retape.schedule.Tape(1, 3, 0)])
        retape.torch.Checkpointed(lambda x: x, 3)
        retape.torch.estimate(3, t)
        retape.torch.diagnose(torch.sum, t, growth=1)
        retape.torch.diagnose(3, t)
        retape.torch.names(save=3)
        retape.torch.names(again={3})
        retape.torch.name_modules(torch.sin)
        retape.torch.region(3).__enter__()
        retape.torch.CompilerBudget(1000, backend="eager")
        retape.torch.CompilerBudget("much")
        retape.torch.CompilerBudget(1000, per_graph="no")
        torch.compile(torch.sin, backend=retape.torch.CompilerBudget(1000, backend="aot_eager"), options={"max_autotune": True})(t)
        retape.torch.Graph().auto_checkpoint_every_n(None, 0)
        retape.torch.Graph().auto_checkpoint_every_n(None, 2.5)
        retape.torch.Graph().auto_checkpoint_by_depth(None, -1)
        retape.torch.Graph().leaf(3.0)
        retape.torch.Graph().apply(torch.sin, t)
        retape.torch.Graph().apply(torch.sin, retape.torch.Graph().leaf(t))
        retape.torch.Graph().apply(lambda: (t, t))
        retape.torch.Graph().mark_checkpoint(None, save_input=True)
        retape.torch.Graph().mark_checkpoint(None, max_recompute_depth="3")
        retape.transformers.RetapeCallback(memory=None)
        retape.transformers.RetapeCallback(memory="12 pears")
        adj(steps=-1)
        adj(steps="10")
        adj(steps=None)
        adj(program=retape.Program(lambda x: x, back))
        adj(program=retape.Program(step, lambda x, g: g))
        retape.Program(step, back, verify="yes")
        retape.measure(P, X)
        retape.viz.timeline(retape.adjoint(P, X, seed=one, steps=10).report)
        retape.viz.timeline(3)
        vlad.run("1", engine="fast")
        vlad.run("1", plan=3)
    """,
    "GradientTypeError": """
        retape.jax.grad(3)(x)
        retape.jax.value_and_grad(None)
        retape.jax.checkpointed("climb")
        retape.jax.vjp(3, x)
        retape.jax.explain(3, x)
        retape.jax.measure(3, x)
        retape.jax.grad(f, holomorphic=True)(x)
        retape.jax.grad(lambda x: (f(x), "text"), has_aux=True)(x)
        retape.jax.grad(lambda x: (f(x), object()), has_aux=True)(x)
        retape.jax.grad(lambda x: (f(x), {"a": [1.0, "b"]}), has_aux=True)(x)
        retape.jax.grad(f)(3)
        retape.jax.grad(f)("x")
        retape.jax.grad(f, argnums=2)(x)
        retape.jax.grad(lambda x: 3)(x)
        retape.jax.measure(f)
        retape.jax.value_and_grad(f, argnums="x")(x)
        retape.jax.explain(f)
        native.grad(3)
        native.grad(len)(1.0)
        native.grad(lambda x: x * x)("x")
        retape.jax.count_waits(3)
        retape.jax.advise(jnp.sin, x, memory="1 GB")
        retape.jax.advise(lambda x: (x, x), x, memory="1 GB")
        retape.jax.saved(jnp.sin, 3)
        retape.torch.diagnose(lambda: torch.ones(3))
        retape.torch.diagnose(lambda: 1.5)
        retape.torch.diagnose(lambda: torch.ones(()))
    """,
    "UnsupportedError": """
        retape.nnx.remat_scan([1, 2])
        retape.jax.checkpoint(3.0)
        retape.jax.advise(3, x, memory="1 GB")
        retape.jax.saved(3)
        retape.torch.checkpoint(torch.sin, t, context_fn=lambda: (generated(), generated()))
        retape.torch.recompute(memory="1 MB")(lambda: (yield))
        torch.compile(lambda t: retape.torch.checkpoint(torch.sin, t, debug=True), backend="aot_eager")(t)
        retape.torch.recompute(memory="1 MB")(lambda t: torch.func.linearize(torch.sin, t)[1](t))(t)
    """,
    "MachineError": """
        adj(program=retape.Program(step, lambda x, k, g: g[:2]))
        adj(program=retape.Program(lambda x, k: None, back))
        retape.driver.run(3, retape.segments())
    """,
    "StoreError": """
        adj(store=3)
        retape.storage.AsyncStore("folder")
        retape.jax.grad(f, store="memory")(x)
        adj(store=retape.DiskStore("/etc/passwd"))
    """,
    "LanguageError": """
        native.grad(lambda x: [x])(1.0)
        native.value_and_grad(lambda x: x, argnums=3)(1.0)
        vlad.run("(+ 1 #t)")
        vlad.run("(f 1)")
    """,
}
"""By the class of the error."""

PYTHONS = {
    "takes 0 positional": "retape.fixed_space(20)",
    "keyword argument 'd'": "retape.fixed_space(d=3)",
    "'budget'": "retape.within()",
    "Write `import retape.jax`": "retape.grad(f)",
    "argument 'snapshots'": "retape.jax.grad(f, snapshots=3)(x)",
    "takes 1 positional argument but 2": "retape.jax.grad(f)(x, x)",
    "`length` not provided": "retape.jax.scan(turn, x, None)",
    "argument 'checkpoints'": "retape.diffrax.RetapeAdjoint(checkpoints=8)",
    "argument 'lengths'": "retape.nnx.remat_scan(turn, lengths=(2, 2))",
    "'input'": "retape.torch.checkpoint(model)",
    "'reverse_step'": "retape.Program(step)",
    "takes 2 positional arguments but 3": "retape.adjoint(step, back, X)",
    "'path'": "retape.DiskStore()",
    "'disk'": "retape.TieredStore(retape.MemoryStore())",
    "'steps'": "retape.check_adjoint(P, X)",
    "too many positional arguments": "native.grad(lambda x: x * x)(1.0, 2.0)",
}
"""By the words that name the argument: Python counts arguments as well as we could."""


def f(x: Any) -> Any:
    halved = jax.lax.while_loop(lambda v: jnp.max(v) > 1, lambda v: v / 2, x)
    return jnp.sum(halved)


def step(x: Any, k: int) -> Any:
    return x * 1.1


def back(x: Any, k: int, g: Any) -> Any:
    return g * 1.1


P = retape.Program(step, back)
X = np.ones(3)


def adj(program: Any = P, **options: Any) -> Any:
    given = {"seed": np.ones_like, "steps": 10} | options
    return retape.adjoint(program, X, **given)


NAMES = {
    **{name: globals()[name] for name in ("f", "step", "back", "P", "X", "adj")},
    **{"retape": retape, "native": native, "vlad": vlad, "one": np.ones_like},
    **{"jax": jax, "jnp": jnp, "nnx": nnx, "torch": torch},
    "plan": retape.logarithmic(),
    "half": [Store(0, 0), Advance(0, 2), Reverse(2, 3)],
    "generated": contextlib.contextmanager(lambda: iter([0])),
    "turn": lambda carry, x: (carry, x),
    "going": lambda v: jnp.max(v) > 1.0,
    "halve": lambda v: v / 2,
    "x": jnp.array([5.0, 3.0]),
    "model": torch.nn.Sequential(*[torch.nn.Linear(4, 4)] * 3),
    "t": torch.ones(2, 4),
}


def calls(text: str) -> list[str]:
    return [line.strip() for line in text.strip().splitlines()]


CELLS = [(name, call) for name, text in OURS.items() for call in calls(text)]


# PyTorch says it of itself, when `linearize` is first used.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize(("error", "call"), CELLS)
def test_a_wrong_call_is_told_in_an_error_of_ours(error: str, call: str) -> None:
    with pytest.raises(getattr(retape, error)) as told, warnings.catch_warnings():
        eval(call, dict(NAMES))
    assert isinstance(told.value, retape.RetapeError)
    assert len(str(told.value)) > 20


@pytest.mark.parametrize(("words", "call"), PYTHONS.items())
def test_what_python_says_itself_names_the_argument(words: str, call: str) -> None:
    with pytest.raises((TypeError, AttributeError, ValueError), match=words):
        eval(call, dict(NAMES))

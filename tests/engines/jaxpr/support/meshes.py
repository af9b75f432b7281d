"""Programs on eight virtual devices, on meshes of both kinds; see
`test_shard_map.py`.

Prints one JSON object: for each case the greatest difference from what plain JAX gives,
relative to the greatest entry; for each budget what the compiler says that a device
takes, and what plain reverse mode takes.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec

import retape
import retape.jax
from retape.jax import checkpoint, policies
from tests.engines.jaxpr.support.eight_devices import (
    KINDS,
    SPLIT,
    WHOLE,
    Function,
    difference,
    mesh_of,
)

LAYERS, WIDTH, ROWS = 6, 16, 64
P = PartitionSpec

POLICIES = {
    "alone": None,
    "sqrt": policies.sqrt(),
    "every_n": policies.every_n(3),
    "selective": policies.selective(),
    "within": policies.within("1 MB"),
}
LOOPS: dict[str, dict[str, Any]] = {
    "levels": {"levels": 2},
    "policy": {"policy": policies.selective()},
    "sqrt": {"policy": policies.sqrt()},
    "plan": {"plan": retape.fixed_space(snapshots=2)},
}


def drawn(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(len(shape)).normal(size=shape) / 4)


def block(x: Any, w: Any) -> Any:
    for i in range(3):
        x = jnp.tanh(jnp.sin(x @ w[i]))
    return x


def looped(x: Any, w: Any) -> Any:
    return lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0]


def squared(f: Function) -> Function:
    return lambda w, x: (f(x, w) ** 2).sum()


def gathered(x: Any, w: Any) -> Any:
    """A part of a program on one device that speaks to the others."""
    total = lax.psum((block(x, w) ** 2).sum(), "d")
    return total + lax.all_gather(x, "d", tiled=True).sum() * 1e-3


def on_each(f: Function, mesh: Any) -> Function:
    whole = jax.shard_map(
        lambda x, w: lax.pmean(f(x, w), "d"),
        mesh=mesh,
        in_specs=(SPLIT, WHOLE),
        out_specs=WHOLE,
    )
    return lambda w, x: whole(x, w)


def cases(mesh: Any) -> Iterator[tuple[str, Function, Function]]:
    """Name, ours and plain JAX's, as functions of weights and rows."""
    for name, policy in POLICIES.items():
        marked = checkpoint(block, policy=policy)
        yield f"checkpoint, {name}", squared(marked), squared(block)
    for name, options in LOOPS.items():

        def ours(x: Any, w: Any, options: Any = options) -> Any:
            step = lambda x, w: (jnp.tanh(x @ w), None)  # noqa: E731
            return retape.jax.scan(step, x, w, **options)[0]

        yield f"scan, {name}", squared(ours), squared(looped)
    plain = on_each(gathered, mesh)
    for name, policy in POLICIES.items():
        part = checkpoint(gathered, policy=policy)
        yield f"{name}, inside shard_map", on_each(part, mesh), plain
        yield f"{name}, around shard_map", checkpoint(plain, policy=policy), plain


def counted(x: Any, w: Any) -> Any:
    """`looped` by a loop whose length is not known, with a number in its carry."""
    return retape.jax.while_loop(
        lambda c: (c[0] < LAYERS) & (jnp.max(c[1]) < 9),
        lambda c: (c[0] + 1, jnp.tanh(c[1] @ w[c[0]])),
        (0, x),
    )[1]


def entrances(folder: str) -> Iterator[tuple[str, Function, Function]]:
    """Name, gradient by one of our entrances, and plain JAX's, with no `jit` around."""
    plan = retape.fixed_space(snapshots=2, stage=1)
    ours, plain = squared(counted), jax.grad(squared(looped))
    yield "while_loop", jax.grad(ours), plain
    store: Any = retape.DiskStore(folder)
    yield "store on disk", retape.jax.grad(ours, plan=plan, store=store), plain
    measured = lambda w, x: retape.jax.measure(  # noqa: E731
        ours, w, x, plan=plan, health=True
    )
    yield "health", lambda w, x: measured(w, x).gradient, plain
    two = jnp.asarray([1.0, 2.0])
    twice = lambda f: lambda w, x: jax.vmap(lambda s: f(w, x * s))(two)  # noqa: E731
    yield "vmap", twice(retape.jax.grad(ours, plan=plan)), twice(plain)
    known = retape.jax.grad(squared(looped), plan=plan)
    rows = lambda f: lambda w, x: jax.vmap(lambda r: f(w, r[None]))(x)  # noqa: E731
    yield "vmap over rows that are spread", rows(known), rows(plain)


def transformer(w: Any, x: Any) -> Any:
    def layer(h: Any, w: Any) -> Any:
        scores = jax.nn.softmax(jnp.einsum("bsd,btd->bst", h @ w["q"], h))
        h = h + jnp.einsum("bst,btd->bsd", scores, h)
        return h + jax.nn.gelu(h @ w["up"]) @ w["down"], None

    return (lax.scan(layer, x, w)[0] ** 2).mean()


WEIGHTS = {"q": (4, 32, 32), "up": (4, 32, 128), "down": (4, 128, 32)}
LAYOUTS: dict[str, tuple[Any, Any]] = {
    "fully sharded": (dict.fromkeys(WEIGHTS, P(None, "d", None)), SPLIT),
    "data parallel": (dict.fromkeys(WEIGHTS, WHOLE), SPLIT),
    "tensor parallel": (
        {"q": WHOLE, "up": P(None, None, "d"), "down": P(None, "d", None)},
        WHOLE,
    ),
}
SHARES = (0.1, 0.4, 1.0)
"""Of what plain reverse mode takes. (0.03 to 4, ten of them, were tried by hand.)"""


def budgets(mesh: Any, name: str) -> dict[str, Any]:
    """What each budget of a layout takes on a device, or the least that would do."""
    of_weights, of_rows = LAYOUTS[name]
    w = {
        k: jax.device_put(drawn(*s), NamedSharding(mesh, of_weights[k]))
        for k, s in WEIGHTS.items()
    }
    x = jax.device_put(drawn(16, 16, 32), NamedSharding(mesh, of_rows))
    plain = jax.jit(jax.grad(transformer)).lower(w, x).compile()
    most = plain.memory_analysis().temp_size_in_bytes
    found: list[dict[str, Any]] = []
    for share in SHARES:
        budget = int(share * most)
        slope = retape.jax.grad(transformer, plan=retape.within(budget))
        try:
            ours = jax.jit(slope).lower(w, x).compile()
        except retape.BudgetError as error:
            found.append({"budget": budget, "least": error.least})
            continue
        taken = ours.memory_analysis().temp_size_in_bytes
        worst = difference(ours(w, x), plain(w, x))
        found.append({"budget": budget, "taken": taken, "difference": worst})
    return {"plain": most, "budgets": found, "asked": asked(w, x, 0.1 * most)}


def asked(w: Any, x: Any, budget: float) -> list[Any]:
    """What is said of arrays, of their types, and of types on a mesh of no devices."""
    types = [jax.tree.map(on_mesh(kind), (w, x)) for kind in (None, "abstract")]
    said: list[Any] = []
    for given in ((w, x), *types):
        advice = retape.jax.advise(transformer, *given, memory="1 GiB")
        try:
            retape.jax.explain(transformer, *given, plan=retape.within(budget))
        except retape.BudgetError as error:
            said.append([[c.peak_bytes for c in advice.candidates], error.least])
    return said


def on_mesh(kind: str | None) -> Function:
    """From an array to its type, where it is."""

    def of(leaf: Any) -> jax.ShapeDtypeStruct:
        mesh = leaf.sharding.mesh
        where = NamedSharding(mesh.abstract_mesh if kind else mesh, leaf.sharding.spec)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=where)

    return of


def main() -> None:
    compared: dict[str, float] = {}
    for kind in KINDS:
        mesh = mesh_of(kind)
        with jax.set_mesh(mesh):
            x = jax.device_put(drawn(ROWS, WIDTH), NamedSharding(mesh, SPLIT))
            w = jax.device_put(drawn(LAYERS, WIDTH, WIDTH), NamedSharding(mesh, WHOLE))
            for name, ours, plain in cases(mesh):
                got, want = (jax.jit(jax.grad(f))(w, x) for f in (ours, plain))
                assert got.sharding.spec == want.sharding.spec, name
                compared[f"{name} ({kind.name})"] = difference(got, want)
            with tempfile.TemporaryDirectory() as folder:
                for name, ours, plain in entrances(folder):
                    got, want = ours(w, x), plain(w, x)
                    assert got.sharding.spec == want.sharding.spec, name
                    compared[f"{name} ({kind.name})"] = difference(got, want)
    auto = mesh_of()
    held = {name: budgets(auto, name) for name in LAYOUTS}
    json.dump({"compared": compared, "held": held}, sys.stdout)


if __name__ == "__main__":
    main()

"""A small network of attention layers, unrolled, for the tests of marked functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core


def layer(h: Any, w: Any) -> Any:
    """Attention over 16 tokens and a wide elementwise part, both added to the input."""
    scores = jax.nn.softmax(h @ w["q"] @ h.T)
    h = h + jnp.tanh(scores @ h @ w["v"])
    return h + jax.nn.gelu(h @ w["up"]) @ w["down"]


def weights(layers: int, width: int = 8) -> list[Any]:
    rng = np.random.default_rng(layers)
    sizes = {"q": (width, width), "v": (width, width)}
    sizes |= {"up": (width, 8 * width), "down": (8 * width, width)}
    return [
        {k: jnp.asarray(rng.normal(size=s) / s[0] ** 0.5) for k, s in sizes.items()}
        for _ in range(layers)
    ]


def start(width: int = 8) -> Any:
    return jnp.asarray(np.random.default_rng(1).normal(size=(16, width)))


def loss(step: Callable[..., Any], w: Sequence[Any], h: Any) -> Any:
    for each in w:
        h = step(h, each)
    return (h**2).mean()


def compiled(fun: Callable[..., Any], *args: Any) -> Any:
    return jax.jit(fun).lower(*args).compile()


def graded(fun: Callable[..., Any], *args: Any) -> tuple[Any, int]:
    """The gradient by the first argument, and the temporaries that it takes."""
    program = compiled(jax.grad(fun), *args)
    return program(*args), program.memory_analysis().temp_size_in_bytes


def temp_bytes(fun: Callable[..., Any], *args: Any) -> int:
    """Temporaries of the gradient, as the compiler tells."""
    return compiled(jax.grad(fun), *args).memory_analysis().temp_size_in_bytes


def assert_near(a: Any, b: Any, tolerance: float = 1e-11) -> None:
    """Equal to rounding, each array against its own largest number."""

    def compare(x: Any, y: Any) -> None:
        largest = float(np.max(np.abs(y), initial=1e-300))
        np.testing.assert_allclose(x, y, rtol=0, atol=tolerance * largest)

    jax.tree.map(compare, a, b)


def compilations(run: Any) -> int:
    """How many programs are compiled while something runs."""
    seen: list[str] = []

    def listen(event: str, _: float, **__: Any) -> None:
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        run()
        return len(seen)
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def work(fun: Callable[..., Any], *args: Any) -> int:
    """The flops of all matrix products of a program, those in loops at each turn."""
    return _products(jax.make_jaxpr(fun)(*args).jaxpr)


def _products(jaxpr: Any) -> int:
    total = 0
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "dot_general":
            ((contracted, _), _) = eqn.params["dimension_numbers"]
            shape = eqn.invars[0].aval.shape
            along = np.prod([shape[i] for i in contracted], dtype=int)
            total += 2 * int(along) * eqn.outvars[0].aval.size
        inner = [getattr(j, "jaxpr", j) for j in core.jaxprs_in_params(eqn.params)]
        total += eqn.params.get("length", 1) * sum(map(_products, inner))
    return total

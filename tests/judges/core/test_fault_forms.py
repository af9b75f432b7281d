"""What a user's functions return is looked at before it is used: a table of both.

Rows are functions of `retape.adjoint`, columns what they may return by mistake. Each is
refused by name, with the step; what only looks unusual gives the gradient by hand.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import retape
from tests.programs import run_program

N, SIZE = 5, 3
X0 = np.linspace(0.2, 0.8, SIZE)


def step(x: Any, k: int) -> Any:
    return x + 0.1 * np.sin(x)


def reverse_step(x: Any, k: int, g: Any) -> Any:
    return g + 0.1 * np.cos(x) * g


def right() -> dict[str, Any]:
    return {"seed": lambda x: 2 * x, "steps": N}


def by_hand() -> Any:
    states = [X0]
    for k in range(N):
        states.append(step(states[-1], k))
    g = 2 * states[-1]
    for k in range(N - 1, -1, -1):
        g = reverse_step(states[k], k, g)
    return g


FORMS = {
    "an item less": lambda g: g[:-1],
    "a missing axis": np.sum,
    "an axis more": lambda g: g[None],
    "a column": lambda g: g[:, None],
    "fewer digits": lambda g: g.astype(np.float16),
    "whole numbers": lambda g: g.astype(int),
    "a list of it": lambda g: [g],
    "a text": str,
    "an object": lambda g: object(),
    "a generator": iter,
    "nothing": lambda g: None,
}


@pytest.mark.parametrize("at", [0, 2, N - 1])
@pytest.mark.parametrize("form", FORMS)
def test_a_cotangent_that_changes_its_form_is_refused_with_its_step(form, at):
    def wrong(x: Any, k: int, g: Any) -> Any:
        found = reverse_step(x, k, g)
        return FORMS[form](found) if k == at else found

    with pytest.raises(retape.RetapeError, match=f"`reverse_step`.* for step {at}"):
        run_program(step, wrong, X0, **right())
    with pytest.raises(retape.RetapeError, match=f"`reverse_step`.* for step {at}"):
        retape.check_adjoint(retape.Program(step, wrong), X0, steps=N)


WRAPS: dict[str, Any] = {
    "dictionary": (lambda x: {"x": x, "k": 0}, lambda t: t["x"]),
    "tuple": (lambda x: (x, 7), lambda t: t[0]),
    "list in a dictionary": (lambda x: {"a": [x]}, lambda t: t["a"][0]),
}


@pytest.mark.parametrize("form", ["an item less", "a missing axis", "fewer digits"])
@pytest.mark.parametrize("wrap", WRAPS)
@pytest.mark.parametrize("tapes", [False, True])
def test_so_is_one_inside_a_tree_with_and_without_tapes(wrap, form, tapes):
    into, out = WRAPS[wrap]

    def wrong(t: Any, k: int, g: Any) -> Any:
        found = reverse_step(out(t), k, out(g))
        return into(FORMS[form](found) if k == 2 else found)

    options = right() | {"seed": lambda t: into(2 * out(t))}
    if tapes:
        options["tape"] = lambda t, k: (into(step(out(t), k)), t)
    with pytest.raises(retape.RetapeError, match="`reverse_step` returned for step 2"):
        run_program(lambda t, k: into(step(out(t), k)), wrong, into(X0), **options)


USUAL: dict[str, Any] = {
    "a row for each of two costs": (
        lambda x: np.array([2 * x, 4 * x]),
        reverse_step,
        lambda g: g[1] / 2,
    ),
    "a parameter's gradient beside it": (
        lambda x: (2 * x, 0.0),
        lambda x, k, g: (reverse_step(x, k, g[0]), g[1] + (np.sin(x) * g[0])),
        lambda g: g[0],
    ),
    "keys in another order": (
        lambda x: {"x": 2 * x, "c": 0.0},
        lambda x, k, g: {"c": g["c"] + 1.0, "x": reverse_step(x, k, g["x"])},
        lambda g: g["x"],
    ),
    "a key that comes on the way": (
        lambda x: {"x": 2 * x},
        lambda x, k, g: {"x": reverse_step(x, k, g["x"]), "c": g.get("c", 0) + x},
        lambda g: g["x"],
    ),
    "more digits": (
        lambda x: (2 * x).astype(np.float32),
        lambda x, k, g: reverse_step(x, k, g.astype(np.float64)),
        lambda g: g,
    ),
    "whole numbers at first": (
        lambda x: np.ones(SIZE, int),
        lambda x, k, g: reverse_step(x, k, 2 * step(x, k) if k == N - 1 else g),
        lambda g: g,
    ),
}


@pytest.mark.parametrize("form", USUAL)
def test_what_only_looks_unusual_gives_the_gradient(form):
    seed, reverse, out = USUAL[form]
    found = retape.adjoint(
        retape.Program(step, reverse), X0, seed=seed, steps=N
    ).cotangent
    np.testing.assert_allclose(out(found), by_hand(), rtol=1e-6)


@pytest.mark.parametrize("tapes", [False, True])
def test_a_state_that_grows_asks_for_cotangents_of_its_own_size(tapes):
    def grow(x: Any, k: int) -> Any:
        return np.concatenate((x, [1.0]))

    def back(x: Any, k: int, g: Any) -> Any:
        return g[: x.size]

    options: dict[str, Any] = {"seed": np.copy, "steps": N}
    if tapes:
        options["tape"] = lambda x, k: (grow(x, k), x)
    found = run_program(grow, back, X0, **options).cotangent
    np.testing.assert_array_equal(found, X0)
    for wrong in (lambda x, k, g: g, lambda x, k, g: g[: x.size - 1]):
        with pytest.raises(retape.MachineError, match="for step 4"):
            run_program(grow, wrong, X0, **options)


def returns(name: str, found: Any) -> dict[str, Any]:
    """Functions of which one returns what it may not."""
    functions: dict[str, Any] = right() | {"step": step, "reverse_step": reverse_step}
    cost = {"cost": lambda x, k: 0.0, "cost_gradient": lambda x, k: 0 * x}
    if name in cost:
        functions |= cost
    if name == "done":
        del functions["steps"]
    if name == "many":
        functions["step"] = None
    if name == "tape":
        functions["tape"] = lambda x, k: (step(x, k), found)
        return functions
    functions[name] = lambda *given: found
    return functions


BAD = {"nothing": None, "an object": object(), "a text of words": "words", "a set": {1}}
ROWS: dict[str, tuple[str, ...]] = {
    "step": ("nothing", "an object", "a set"),
    "many": ("nothing", "an object", "a set"),
    "seed": ("nothing", "an object", "a set"),
    "reverse_step": ("nothing", "an object", "a set", "a text of words"),
    "tape": ("an object", "a set"),
    "cost": ("nothing", "an object", "a set", "a text of words"),
    "cost_gradient": ("an object", "a set", "a text of words"),
    "done": ("nothing",),
}
SAYS = {"step": "step", "many": "step|many"}


@pytest.mark.parametrize(
    ("name", "bad"), [(name, bad) for name, row in ROWS.items() for bad in row]
)
def test_what_is_no_state_cost_or_cotangent_is_refused_by_name(name, bad):
    functions = returns(name, BAD[bad])
    with pytest.raises(retape.RetapeError, match=SAYS.get(name, f"`{name}`")):
        run_program(x0=X0, **functions)


@pytest.mark.parametrize(
    ("name", "where"),
    [("step", "for step 0. Ret"), ("many", "for step 0. Ret"), ("seed", "for the las")],
)
def test_a_function_that_returns_nothing_is_told_where(name, where):
    functions = returns(name, None) | {"steps": 9}
    with pytest.raises(retape.MachineError, match=f"`{name}` returned `None` {where}"):
        run_program(x0=X0, plan=retape.fixed_space(snapshots=3, stage=1), **functions)


@pytest.mark.parametrize("made", [np.ones(2), (1.0, 2.0, 3.0), None])
def test_a_tape_without_its_two_parts_is_refused_by_name(made):
    functions = returns("tape", None) | {"tape": lambda x, k: made}
    said = f"`tape` returned a `{type(made).__name__}` for step 0"
    with pytest.raises(retape.MachineError, match=said):
        run_program(x0=X0, **functions)


NO_FUNCTIONS: list[tuple[dict[str, Any], str]] = [
    ({"seed": np.ones(2)}, r"`seed=array.* is not a function"),
    ({"done": 7, "steps": None}, "`done=7` is not a function"),
    ({"tape": "t"}, "`tape='t'` is not a function"),
    ({"observe": 7}, "`observe=7` is not a function"),
    ({"many": "f"}, "`many='f'` is not a function"),
    ({"step": None}, "`step=None` is not a function"),
    ({"cost": step}, "`cost=.* pass both or neither"),
    ({"cost_gradient": step}, "pass both or neither"),
]


@pytest.mark.parametrize(("options", "said"), NO_FUNCTIONS)
def test_what_is_no_function_or_half_of_a_pair_is_refused_by_name(options, said):
    functions = right() | {"step": step, "reverse_step": reverse_step} | options
    with pytest.raises(retape.PlanError, match=said):
        run_program(x0=X0, **functions)


def test_a_cost_gradient_of_another_form_than_the_seed_is_refused():
    with pytest.raises(retape.MachineError, match="same form as `seed` and"):
        run_program(
            step,
            lambda x, k, g: (g[0],),
            X0,
            cost=lambda x, k: 0.0,
            cost_gradient=lambda x, k: [x],
            seed=lambda x: (x,),
            steps=3,
        )


@pytest.mark.parametrize("found", [np.array([True, False]), np.zeros((2, 2))])
def test_a_predicate_that_gives_an_array_is_refused_by_name(found):
    with pytest.raises(retape.MachineError, match="`done` returned.* step 0"):
        run_program(x0=X0, **returns("done", found))
    functions = returns("done", None) | {"done": lambda x: np.array([x[0] > 0.3])}
    assert run_program(x0=X0, **functions).report.length > 0


@pytest.mark.parametrize("found", [np.ones(2), np.ones((SIZE, 1)), np.float64(1.0)])
def test_a_term_of_the_gradient_that_would_be_spread_is_refused(found):
    functions = returns("cost_gradient", found)
    with pytest.raises(retape.MachineError, match=f"`cost_gradient`.* k = {N}"):
        run_program(x0=X0, **functions)
    functions = returns("cost", None)
    functions["cost"] = lambda x, k: np.ones((3, 1) if k == 2 else 3)
    with pytest.raises(retape.MachineError, match="`cost` returned for k = 2"):
        run_program(x0=X0, **functions)


ARITIES: dict[str, Any] = {
    "step": lambda x: x,
    "reverse_step": lambda g: g,
    "seed": lambda: 0,
    "done": lambda x, k: True,
    "tape": lambda x: (x, x),
    "many": lambda x, k: x,
    "observe": lambda x: None,
    "cost": lambda x: 0.0,
    "cost_gradient": lambda x, k, more: x,
}


@pytest.mark.parametrize(
    ("call", "name"),
    [
        *((retape.adjoint, name) for name in ARITIES),
        *((retape.check_adjoint, n) for n in ("tangent", "value", "cost")),
        (retape.check_adjoint, "tape"),
    ],
)
def test_a_function_of_other_parameters_is_refused_before_the_first_step(call, name):
    if call is retape.adjoint:
        functions = returns(name, None) | {name: ARITIES[name]}
    else:
        functions = {"step": step, "reverse_step": reverse_step, "steps": 2}
        functions[name] = lambda: 0.0
    with pytest.raises(retape.PlanError, match=f"`{name}` is called as `{name}\\("):
        run_program(x0=X0, **functions, call=call)

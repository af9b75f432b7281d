"""Who obeys which plan: the table of the page is what happens when it is tried."""

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import retape
from retape import PlanError
from retape.plan import _support
from tests.plan.seams import SAMPLES, parse_plan

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "retape"


def by_adjoint(plan):
    result = retape.adjoint(
        retape.Program(lambda x, k: 1.5 * x, lambda x, k, g: 1.5 * g),
        np.ones(3),
        seed=np.ones_like,
        steps=4,
        plan=plan,
        store=retape.MemoryStore(),
    )
    return result.cotangent[0]


def by_jax(plan):
    jax = pytest.importorskip("jax")
    import retape.jax

    def looped(x):
        return jax.lax.fori_loop(0, 4, lambda k, y: 1.5 * y, x)

    return retape.jax.grad(looped, plan=plan)(1.0)


def by_jax_hosted(plan):
    jax = pytest.importorskip("jax")
    import retape.jax

    def looped(x):
        # Long enough that its steps are steps of the plan.
        y = jax.lax.while_loop(lambda c: c[0] < 4, lambda c: (c[0] + 1, 1.5 * c[1]), x)
        return y[1]

    def looped_from(x):
        return looped((0, x))

    store = retape.MemoryStore()
    try:
        return retape.jax.grad(looped_from, plan=plan, store=store)(1.0)
    except PlanError as error:
        plan = of_its_length(plan, error)
        return retape.jax.grad(looped_from, plan=plan, store=store)(1.0)


def of_its_length(plan, error):
    """A chain is of as many steps as the program: 4 products are more than 4."""
    steps = re.search("this chain has 4 steps and the run has ([0-9]+)", str(error))
    if steps is None:
        raise error
    n = int(steps[1])
    sizes = {"forward": [1] * n, "states": [1] * n, "tapes": [1] * n}
    return retape.chain(**sizes, budget=6, store=plan.store)


def by_recompute(plan):
    torch = pytest.importorskip("torch")
    import retape.torch

    x = torch.ones(3, requires_grad=True)
    with retape.torch.recompute(plan=plan):
        y = x
        for _ in range(4):
            y = 1.5 * y
    y.sum().backward()
    return x.grad[0]


def by_chain(plan):
    torch = pytest.importorskip("torch")
    import retape.torch

    x = torch.ones(3, requires_grad=True)
    chain = [lambda y: 1.5 * y] * 4
    y = retape.torch.checkpoint_sequential(chain, input=x, plan=plan)
    y.sum().backward()
    return x.grad[0]


def by_vlad(plan):
    pytest.importorskip("numpy")
    from retape import vlad

    text = "(checkpoint-*j (lambda (x) (* 1.5 (* 1.5 (* 1.5 (* 1.5 x))))) 1 1)"
    try:
        result = vlad.run(text, engine="interpreter", plan=plan)
    except PlanError as error:
        plan = of_its_length(plan, error)
        result = vlad.run(text, engine="interpreter", plan=plan)
    return result.values[0][1]


TRY = {
    _support.ADJOINT: by_adjoint,
    _support.JAX: by_jax,
    _support.JAX_HOSTED: by_jax_hosted,
    _support.RECOMPUTE: by_recompute,
    _support.CHAIN: by_chain,
    _support.VLAD: by_vlad,
}


@pytest.mark.parametrize("by", _support.OBEYERS, ids=lambda by: by.short)
@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.text)
def test_a_plan_is_obeyed_or_refused_as_the_table_says(kind, by):
    plan = parse_plan(kind.text)
    why = by.refusal(plan)
    if why is None:
        assert float(TRY[by](plan)) == pytest.approx(1.5**4)
        return
    with pytest.raises(PlanError) as refused:
        TRY[by](plan)
    assert why in str(refused.value) and repr(plan) in str(refused.value)


@pytest.mark.parametrize("by", _support.OBEYERS[1:], ids=lambda by: by.short)
def test_offload_is_obeyed_or_refused_by_name(by):
    plan = retape.logarithmic(offload="host")
    if by is _support.JAX_HOSTED:
        with pytest.raises(PlanError, match="say the same thing twice"):
            TRY[by](plan)
        return
    if by.offloads:
        assert float(TRY[by](plan)) == pytest.approx(1.5**4)
        return
    with pytest.raises(PlanError, match="Leave `offload` out of the plan; "):
        TRY[by](plan)


@pytest.mark.parametrize("by", _support.OBEYERS, ids=lambda by: by.short)
def test_what_is_no_plan_is_refused(by):
    for wrong in (3, "segments", retape.fixed_space, retape.Plan):
        with pytest.raises(PlanError, match="is no(t a)? plan"):
            TRY[by](wrong)


def test_a_split_that_a_running_program_cannot_have_is_refused():
    plan = retape.fixed_space(snapshots=3, split="bisection")
    with pytest.raises(PlanError, match="`split='bisection'` is not offered.*Leave"):
        _support.check_plan(plan, _support.RECOMPUTE)


def test_a_large_program_without_a_loop_refuses_tiers_by_name():
    jnp = pytest.importorskip("jax.numpy")
    import retape.jax

    def straight(x):
        for _ in range(3):
            x = jnp.sin(x @ x)
        return x.sum()

    # More than 16 MiB of tape: such a program is cut into pieces under any plan.
    x = jnp.ones((1500, 1500)) / 1500
    with pytest.raises(PlanError, match="makes a schedule of its own. Pass another"):
        retape.jax.grad(straight, plan=retape.tiers(memory=2, disk=4))(x)


# The page and the sources -----------------------------------------------------


def test_the_tables_of_the_page_are_those_of_the_registry():
    page = (ROOT / "docs" / "choosing-a-plan.md").read_text()
    refused: dict[str, list[str]] = {}
    for kind in SAMPLES:
        plan = parse_plan(kind.text)
        who = [by.short for by in _support.OBEYERS if by.refusal(plan) is not None]
        refused.setdefault(", ".join(who), []).append(f"`{kind.call}`")
    rows = [["plan", "not obeyed by"], ["---"] * 2]
    rows += [[", ".join(calls), who] for who, calls in refused.items() if who]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    assert table in page, f"put this on the page:\n{table}"
    for kind in SAMPLES:
        row = f"| `{kind.call}` | {kind.fixed} | {kind.follows} |\n"
        assert row in page, f"put this on the page:\n{row}"


@pytest.mark.parametrize("kind", SAMPLES, ids=lambda kind: kind.text)
def test_a_plan_is_shown_as_the_call_that_makes_it(kind):
    plan = parse_plan(kind.text)
    names = {"retape": retape, "StepCosts": retape.StepCosts}
    assert eval(repr(plan), names) == plan
    assert repr(plan).startswith(f"retape.{kind.name}(")


def plan_classes() -> set[str]:
    """The classes of the kinds of plans, and what they have in common."""
    kinds = {type(parse_plan(kind.text)) for kind in SAMPLES}
    shared = {base for kind in kinds for base in kind.__mro__}
    return {cls.__name__ for cls in shared} - {"Plan", "object"}


def named_classes(text: str, classes: set[str]) -> list[str]:
    """The classes of plans that a module imports from `retape.plan`."""
    if not re.search(r"from retape\.plan[\w.]* import", text):
        return []  # to parse all modules takes six seconds
    return [
        alias.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("retape.plan")
        for alias in node.names
        if alias.name in classes
    ]


def test_no_engine_names_a_class_of_plans():
    classes = plan_classes()
    assert {"MixedSpace", "ScheduledPlan", "Tiers", "ChainPlan"} <= classes
    for path in sorted(SOURCES.rglob("*.py")):
        if path.parent.name != "plan" or "engines" in path.parts:
            assert named_classes(path.read_text(), classes) == [], path


def test_the_reading_of_names_can_say_no():
    text = "def f():\n    from retape.plan._tiers import Tiers, tiers\n"
    assert named_classes(text, plan_classes()) == ["Tiers"]

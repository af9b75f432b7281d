"""checkpoint_sequential: segments, plans, and the optimum under a byte budget."""

from collections import Counter
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

import retape
import retape.torch
from retape.schedule import Advance, Chain, Reverse, Schedule
from retape.storage import Place
from tests.engines.eager.api.test_program_forms import assert_same, outcome


def uneven(depth: int = 8) -> nn.Sequential:
    """Blocks whose widths, and so whose bytes and costs, differ a lot."""
    torch.manual_seed(0)
    return nn.Sequential(
        *(
            nn.Sequential(
                nn.Linear(8, wide), nn.BatchNorm1d(wide), nn.GELU(),
                nn.Dropout(0.2), nn.Linear(wide, 8),
            )
            for wide in ((8, 64, 24)[k % 3] for k in range(depth))
        )
    )  # fmt: skip


EXECUTIONS = [0]


@torch.library.custom_op("retape_test::counted_sin", mutates_args=())
def counted(x: torch.Tensor) -> torch.Tensor:
    """A sine that counts how often it is computed, wherever that is."""
    EXECUTIONS[0] += 1
    return x.sin()


counted.register_autograd(
    lambda ctx, grad: grad * ctx.saved_tensors[0].cos(),
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


def computed_again(chain: list[Any], x: torch.Tensor, **options: Any) -> int:
    """Sines of a chain that are computed once more for its backward."""
    EXECUTIONS[0] = 0
    y = retape.torch.checkpoint_sequential(chain, input=x, **options)
    y.square().sum().backward()
    return EXECUTIONS[0] - len(chain)


PLANS = [
    retape.fixed_space(snapshots=1),
    retape.fixed_space(snapshots=3, stage=2),
    retape.fixed_time(sweeps=2),
    retape.logarithmic(),
    retape.segments(),
    retape.within("63kB"),
    Schedule(8, 2, 1, "bisection"),
    Chain([1, 5] * 4, states=[2] * 8, tapes=[3, 9] * 4, budget=20),
    Chain([1, 5] * 4, states=[2] * 8, tapes=[3, 9] * 4, budget=20, keep_tapes=False),
    retape.fixed_space(snapshots=3, store={"state", "tape"}),
]


WAYS: list[dict[str, Any]] = [
    *(
        {"segments": n, "use_reentrant": False, "preserve_rng_state": True}
        for n in (1, 2, 4, 8)
    ),
    *({"plan": plan} for plan in PLANS),
    # A draw keeps five kilobytes, the state of its generator: forty here, and one more
    # is put aside. What else a budget does is `recompute`'s.
    {"memory": 64_000},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: str(way)[:36])
def test_each_way_gives_the_plain_bits_measured_and_planned(way: Any) -> None:
    plain, chain = uneven(), uneven()
    forward = partial(retape.torch.checkpoint_sequential, chain, **way)
    for _ in range(3):
        assert_same(outcome(plain, plain), outcome(chain, lambda x: forward(input=x)))


KEPT = Chain([1, 9] * 5, states=[2] * 10, tapes=[7, 1] * 5, budget=13)


@pytest.mark.parametrize(
    ("plan", "advances", "kept"), [(Schedule(10, 3), 15, 0), (KEPT, None, 2)]
)
def test_what_a_plan_says_is_computed_again(
    plan: Any, advances: int | None, kept: int
) -> None:
    """Every second step of the chain costs nine, and its tape fits beside a state."""
    assert plan.counts().kept_tapes == kept
    assert advances in (None, plan.counts().advances)
    actions = list(plan)
    # The program's own run is free, and it makes the tapes of its way.
    first = next(i for i, each in enumerate(actions) if isinstance(each, Reverse))
    way = sum(e.stop - e.start for e in actions[:first] if isinstance(e, Advance))
    # What `sin` saves is its input: all but the last step of a stage are run for it.
    stages = (e for e in actions[first + 1 :] if isinstance(e, Reverse))
    least = plan.counts().advances - way + sum(e.stop - e.start - 1 for e in stages)
    x = torch.ones(4, requires_grad=True)
    again = computed_again([counted] * 10, x, plan=plan)
    # A function of Python is asked once more for each snapshot that it makes.
    assert least <= again <= least + 3


def test_a_kept_graph_is_reversed_again_and_again() -> None:
    chain = [torch.sin, torch.exp, torch.tanh] * 6
    x = torch.rand(64, 64, requires_grad=True)
    y = x
    for function in chain:
        y = function(y)
    (expected,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(expected.sum(), x)
    plan = retape.fixed_space(snapshots=3)
    y = retape.torch.checkpoint_sequential(chain, input=x, plan=plan)
    for _ in range(2):
        (found,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        assert torch.equal(found, expected)
    (found,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    assert torch.equal(torch.autograd.grad(found.sum(), x)[0], second)


def test_functions_of_tuples_and_inside_another_recomputation() -> None:
    def body(state: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        h, c = state
        return torch.tanh(h + c), c * h

    x = torch.rand(8, 8, requires_grad=True)
    for _ in range(2):
        with retape.torch.recompute(snapshots=2) as outer:
            h, c = retape.torch.checkpoint_sequential(
                [body] * 9, None, (x, x), memory=9
            )
        (inner,) = torch.autograd.grad((h + c).sum(), x)
        h, c = retape.torch.checkpoint_sequential([body] * 9, None, (x, x), memory=9000)
        assert torch.equal(inner, torch.autograd.grad((h + c).sum(), x)[0])
        assert outer.report.steps == 27
    with torch.no_grad():
        h, _ = retape.torch.checkpoint_sequential([body] * 9, None, (x, x), memory=9000)
    assert not h.requires_grad


class TierSpy(retape.MemoryStore[Any]):
    def __init__(self) -> None:
        super().__init__()
        self.tiers: list[str] = []

    def put(self, place: Place, capsule: Any, nbytes: int) -> None:
        self.tiers.append(place.tier)
        super().put(place, capsule, nbytes)


def test_snapshots_of_a_budget_in_a_store() -> None:
    plain, chain, store = uneven(), uneven(), TierSpy()
    options: Any = {"memory": "63kB", "store": store}
    forward = partial(retape.torch.checkpoint_sequential, chain, **options)
    assert_same(outcome(plain, plain), outcome(chain, lambda x: forward(input=x)))
    assert len(store.tiers) > 3 and store.nbytes == 0


@pytest.mark.parametrize(
    ("plan", "tiers"),
    [
        # As many as the schedule stores, but the input, which the caller has.
        (retape.tiers(memory=0, disk=4), {"disk": 4}),
        (retape.tiers(memory=2, disk=4), {"memory": 6}),
        (
            retape.tiers(
                levels=(
                    retape.Tier("device", 0),
                    retape.Tier("host", 2, 1, 1),
                    retape.Tier("remote", 9, 2, 2),
                )
            ),
            {"host": 7, "remote": 1},
        ),
        (retape.fixed_space(snapshots=3), {"memory": 9}),
    ],
)
def test_snapshots_of_a_plan_are_kept_in_a_store(
    plan: Any, tiers: dict[str, int]
) -> None:
    torch.manual_seed(0)
    pairs = [(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(20)]
    chain = [torch.nn.Sequential(*pair) for pair in pairs]
    x = torch.randn(4, 8, requires_grad=True)
    plain = x
    for layer in chain:
        plain = layer(plain)
    (expected,) = torch.autograd.grad(plain.sum(), x)
    store = TierSpy()
    y = retape.torch.checkpoint_sequential(chain, input=x, plan=plan, store=store)
    (found,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert torch.equal(found, expected)
    assert Counter(store.tiers) == tiers
    (again,) = torch.autograd.grad(y.sum(), x)
    assert torch.equal(again, expected)
    assert store.nbytes == 0

import torch

from retape.engines.eager.compiled._closure import closure, direct
from retape.engines.eager.compiled._liveness import (
    account,
    backward_order,
    sweep,
)
from tests.engines.eager.compiled.joints import mlp, names, seen


def test_a_chain_by_hand():
    # x of 1000 bytes, three sines, a sum. The backward of each sine is a product with
    # the cosine of what it read, which needs no cotangent.
    x = torch.ones(250, requires_grad=True)
    joint = seen(lambda x: x.sin().sin().sin().sum(), x).joint
    place = {node.name: k for k, node in enumerate(joint.nodes)}
    saved = account(joint, {place[name] for name in ("cos", "cos_1", "cos_2")}, ())
    assert names(joint, saved.keep) == ["cos", "cos_1", "cos_2"]
    assert saved.saved == 3000
    assert saved.operators == saved.cost == 0
    # The cosines, the first product with the cotangent, which the kernel writes out
    # from one number, and the loss and its cotangent.
    assert saved.peak == 3000 + 1000 + 1000 + 8
    again = account(joint, (), ())
    assert (again.saved, again.operators) == (0, 5)
    assert again.cost == 5 * 2000


def test_what_runs_again_comes_just_before_it_is_read():
    x = torch.ones(250, requires_grad=True)
    joint = seen(lambda x: x.sin().sin().sin().sum(), x).joint
    plan = closure(joint, joint.needed, ())
    order = [joint.nodes[k].name for k in backward_order(joint, plan)]
    # The first cosine, of the second sine, needs both.
    assert order.index("sin") < order.index("sin_1") < order.index("cos")


def test_a_sweep_counts_what_is_alive_and_what_stays():
    x = torch.ones(250, requires_grad=True)
    joint = seen(lambda x: x.sin().sin().sin().sum(), x).joint
    place = {node.name: k for k, node in enumerate(joint.nodes)}
    sines = [place[name] for name in ("sin", "sin_1", "sin_2")]
    assert sweep(joint, sines, (), ()) == 2000
    assert sweep(joint, sines, sines, ()) == 3000
    assert sweep(joint, sines[1:], (), sines[:1]) == 2000


def test_nothing_runs_again_if_all_that_is_read_is_saved():
    model, x = mlp(3), torch.ones(5, 8)
    joint = seen(lambda x: model(x).sum(), x).joint
    plan = account(joint, direct(joint), ())
    assert plan.operators == 0
    assert plan.saved == sum(
        joint.nbytes[s] for s in {s for k in direct(joint) for s in joint.storages[k]}
    )

import torch

from retape.engines.eager.compiled._closure import closure
from tests.engines.eager.compiled.joints import names, seen


def test_views_share_their_storage_and_are_free():
    x = torch.ones(6, 4, requires_grad=True)
    joint = seen(lambda x: (x.sin().t().reshape(2, 12).sin()).sum(), x).joint
    made = [n.name for n, own in zip(joint.nodes, joint.made, strict=True) if own]
    views = [n.name for n, view in zip(joint.nodes, joint.view, strict=True) if view]
    assert "sin" in made and "t" in views
    place = {node.name: k for k, node in enumerate(joint.nodes)}
    assert joint.storages[place["t"]] == joint.storages[place["sin"]]
    assert joint.cost[place["t"]] == 0 < joint.cost[place["sin"]]


def test_inputs_have_no_bytes_and_cotangents_have():
    x = torch.ones(6, 4, requires_grad=True)
    joint = seen(lambda x: x.sin(), x).joint
    inputs = [k for k, node in enumerate(joint.nodes) if node.op == "placeholder"]
    sizes = [sum(joint.nbytes[s] for s in joint.storages[k]) for k in inputs]
    assert sizes == [0, 96]
    assert [joint.backward[k] for k in inputs] == [False, True]


def test_random_operators_are_not_run_again_and_products_cost_more_than_moves():
    x = torch.ones(32, 32, requires_grad=True)
    joint = seen(lambda x: torch.dropout((x @ x).sin(), 0.5, True).sin().sum(), x).joint
    impure = [
        n.name for n, pure in zip(joint.nodes, joint.pure, strict=True) if not pure
    ]
    assert any("dropout" in name or "bernoulli" in name for name in impure), impure
    place = {node.name: k for k, node in enumerate(joint.nodes)}
    assert joint.flops[place["mm"]] == 2 * 32**3
    assert joint.cost[place["mm"]] > joint.cost[place["sin"]] > 0


def test_a_buffer_that_is_overwritten_is_lost():
    module = torch.nn.Module()
    module.register_buffer("rate", torch.ones(4))

    def function(x):
        y = (x + module.rate).sin()
        module.rate.mul_(2)
        return y.sin().sum()

    joint = seen(function, torch.ones(4, requires_grad=True)).joint
    place = {node.name: k for k, node in enumerate(joint.nodes)}
    assert not joint.pure[place["add"]]
    assert joint.pure[place["sin"]]
    assert names(joint, closure(joint, joint.needed, ()).saved) == ["add"]

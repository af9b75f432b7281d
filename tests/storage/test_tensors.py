"""PyTorch's tensors as states: copied as arrays are, to memory and to files."""

import sys

import numpy as np
import pytest

import retape
from retape import DiskStore, MachineError, MemoryStore, StoreError, TieredStore
from retape.storage import CodecStore, Place, copy_tree, fingerprint, tree_nbytes
from retape.storage._trees._tensors import tensor_from_array
from tests.judges.pairwise import dealt
from tests.programs import run_program
from tests.storage.files import WAYS, written

torch = pytest.importorskip("torch")

STEPS = 23


def long(*shape):
    return torch.arange(float(np.prod(shape))).reshape(shape)


@pytest.mark.parametrize("again", WAYS)
@pytest.mark.parametrize(
    "made",
    [
        lambda: long(2, 3).t(),
        lambda: long(2, 3, 4).permute(1, 2, 0),
        lambda: long(12)[::3],
        lambda: long(3).expand(2, 3),
        lambda: long(3)[1:],
        lambda: torch.tensor(2.5, dtype=torch.float64),
        lambda: torch.zeros(0, 3),
        lambda: torch.tensor([1.5, -2.5], dtype=torch.bfloat16),
        lambda: torch.tensor([1.5, -2.5]).to(torch.float8_e5m2),
        lambda: torch.tensor([True, False]),
        lambda: torch.tensor([1 + 2j, 3j]).conj(),
        lambda: torch.tensor([1 + 2j, 3j]).conj().imag,
        lambda: torch.nn.Parameter(torch.ones(2)),
    ],
)
def test_type_layout_and_values_are_kept(again, made):
    tensor = made()
    found = again({"x": tensor})["x"]
    assert type(found) is torch.Tensor and not found.requires_grad
    assert found.dtype == tensor.dtype and found.stride() == tensor.stride()
    assert found.is_conj() == tensor.is_conj() and found.is_neg() == tensor.is_neg()
    assert found.tolist() == tensor.tolist()
    assert found.data_ptr() != tensor.data_ptr() or not tensor.numel()
    assert fingerprint(found) == fingerprint(tensor)


def test_a_copy_has_the_bytes_that_are_told():
    assert tree_nbytes(torch.zeros(3, dtype=torch.bfloat16)) == 6
    assert tree_nbytes(torch.zeros(6)[::2]) == 20
    assert tree_nbytes(torch.zeros(3).expand(4, 3)) == 12


def test_parts_of_one_tensor_are_parts_of_a_state_if_they_do_not_overlap():
    whole = long(6)
    one, other = copy_tree(whole.chunk(2))
    one[0] = 5.0
    assert whole[0] == 0.0 and other.tolist() == [3.0, 4.0, 5.0]
    for parts in ((whole, whole), (whole, whole[1:-1]), (whole[:3], whole[2:])):
        with pytest.raises(StoreError, match="same memory as another part of it"):
            copy_tree(parts)


def test_what_cannot_be_kept_is_refused_by_name(monkeypatch):
    with pytest.raises(StoreError, match=r"torch\.sparse_coo"):
        copy_tree(torch.eye(2).to_sparse())
    array = np.zeros(4)
    with pytest.raises(StoreError, match="same memory as another part of it"):
        copy_tree([torch.from_numpy(array)[1:], array])
    assert copy_tree([torch.zeros(4), array])[1] is not array
    with pytest.raises(retape.SnapshotError, match="which this process does not have"):
        tensor_from_array(np.ones(2), ["torch", "float64", "xpu", False, False])
    store, _ = written(torch.ones(2))
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(retape.SnapshotError, match="Import `torch`"):
        store.get(Place(0, 0, "disk"))


# Runs. The step is u -> u + tanh(W u) / 10, in ways in which people write it.

W = torch.linspace(-1, 1, 25, dtype=torch.float64).reshape(5, 5)


def plain(u, k):
    return u + torch.tanh(W @ u) / (10 + k)


def in_place(u, k):
    u += torch.tanh(W @ u) / (10 + k)
    return u


def recorded(u, k):
    """With parameters that autograd watches: states have a graph."""
    return u + torch.tanh(torch.nn.Parameter(W) @ u) / (10 + k)


def by_numpy(u, k):
    """Writes to the tensor's memory where PyTorch does not see it."""
    u.numpy()[...] = plain(u, k).numpy()
    return u


BUFFERS = [torch.zeros(5, dtype=torch.float64) for _ in range(2)]


def ping_pong(u, k):
    return torch.add(u, torch.tanh(W @ u) / (10 + k), out=BUFFERS[k % 2])


def backward(u, k, g):
    u = u.requires_grad_()
    (found,) = torch.autograd.grad(plain(u, k), u, g)
    u.detach().zero_()
    g.zero_()
    return found


def start():
    return torch.linspace(0.5, 1.5, 5, dtype=torch.float64)


@pytest.fixture(scope="module")
def reference():
    u = x = start().requires_grad_()
    for k in range(STEPS):
        u = plain(u, k)
    (u * u).sum().backward()
    return u.detach(), x.grad


PLACES = {
    "memory": lambda path: MemoryStore(),
    "disk": lambda path: DiskStore(path, every=0),
    "tiers": lambda path: TieredStore(MemoryStore(capacity=1), DiskStore(path)),
    "packed": lambda path: CodecStore(MemoryStore()),
}
PLANS = {
    ("space", "memory"): retape.fixed_space(snapshots=3),
    ("stages", "memory"): retape.fixed_space(snapshots=2, stage=3),
    ("space", "disk"): retape.fixed_space(snapshots=3),
    ("tiers", "tiers"): retape.tiers(memory=1, disk=2, stage=2),
    ("time", "packed"): retape.fixed_time(sweeps=2),
}


def call(step, cell, path, **options):
    given = {"seed": lambda u: u.mul_(2), "steps": STEPS, "key": "a test"} | options
    store = PLACES[cell[1]](path)
    return run_program(step, backward, start(), plan=PLANS[cell], store=store, **given)


@pytest.mark.parametrize(
    ("step", "cell"),
    dealt([plain, in_place, recorded, by_numpy, ping_pong], list(PLANS), rounds=2),
)
def test_ways_to_write_a_step(step, cell, reference, tmp_path):
    found = call(step, cell, tmp_path)
    # The order of a sum is that of the steps, so bits are equal.
    assert torch.equal(found.state, reference[0])
    assert torch.equal(found.cotangent, reference[1])


def test_steps_keep_no_graph_and_a_tape_with_one_is_refused(tmp_path):
    held = []

    def step(u, k):
        held.append(u.grad_fn)
        return recorded(u, k)

    def tape(u, k):
        u = u.detach().requires_grad_()
        after = plain(u, k)
        return after.detach(), (u, after)

    x0, seed = start().requires_grad_(), lambda u: 2 * u
    run_program(step, backward, x0, seed=seed, steps=STEPS)
    assert held and not any(held) and torch.equal(x0, start())
    with pytest.raises(MachineError, match="autograd's graph"):
        call(plain, ("space", "memory"), tmp_path, tape=tape, seed=seed)


def test_a_run_is_taken_up_again(tmp_path, reference):
    left = 30

    def failing(u, k):
        nonlocal left
        left -= 1
        if not left:
            raise RuntimeError
        return plain(u, k)

    with pytest.raises(RuntimeError):
        call(failing, ("space", "disk"), tmp_path)
    found = call(failing, ("space", "disk"), tmp_path)
    assert found.report.resumed
    assert torch.equal(found.cotangent, reference[1])


def test_an_adjoint_is_checked():
    def wrong(u, k, g):
        return backward(u, k, g.clone()) + 0.01 * g

    for reverse, right in ((backward, True), (wrong, False)):
        program = retape.Program(plain, reverse)
        assert retape.check_adjoint(program, start(), steps=4).ok is right

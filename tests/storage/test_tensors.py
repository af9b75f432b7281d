"""PyTorch's tensors as states: copied as arrays are, to memory and to files."""

import sys

import numpy as np
import pytest

import retape
from retape import DiskStore, MachineError, MemoryStore, StoreError, TieredStore
from retape.storage import CodecStore, copy_tree, fingerprint, tree_nbytes
from retape.storage._trees._tensors import tensor_from_array
from tests.programs import run_program
from tests.storage.files import through_a_file, written

torch = pytest.importorskip("torch")

STEPS = 23


WAYS = [copy_tree, through_a_file]


@pytest.mark.parametrize("again", WAYS)
@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.arange(6.0).reshape(2, 3).t(),
        lambda: torch.arange(24.0).reshape(2, 3, 4).permute(1, 2, 0),
        lambda: torch.arange(12.0)[::3],
        lambda: torch.arange(3.0).expand(2, 3),
        lambda: torch.arange(3.0)[1:],
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
    assert torch.equal(
        found.double() if "float8" in str(found.dtype) else found,
        tensor.double() if "float8" in str(found.dtype) else tensor,
    )
    assert found.data_ptr() != tensor.data_ptr() or not tensor.numel()
    assert fingerprint(found) == fingerprint(tensor)


@pytest.mark.parametrize("again", WAYS)
def test_tensors_that_overlap_still_do(again):
    whole = torch.arange(6.0)
    copy, inner, other = again((whole, whole[1:-1], torch.zeros(2)))
    copy[2] = 7.0
    assert inner[1] == 7.0 and whole[2] == 2.0 and other.tolist() == [0, 0]
    by_numpy = torch.from_numpy(whole.numpy())
    one, two = again((whole, by_numpy))
    one[0] = 5.0
    assert two[0] == 5.0


def test_bytes_are_those_of_the_copy():
    assert tree_nbytes(torch.zeros(3, dtype=torch.bfloat16)) == 6
    assert tree_nbytes(torch.zeros(6)[::2]) == 20
    assert tree_nbytes(torch.zeros(3).expand(4, 3)) == 12


def test_a_copy_is_aligned_as_its_original():
    whole = torch.arange(64.0)
    for tensor in (whole, whole[3:], whole[3::2]):
        for again in ([tensor], [tensor, tensor[1:]]):
            assert copy_tree(again)[0].data_ptr() % 64 == tensor.data_ptr() % 64 or (
                tensor is not whole and len(again) == 1
            )


def test_what_is_no_memory_with_strides_is_refused():
    with pytest.raises(StoreError, match=r"torch\.sparse_coo"):
        copy_tree(torch.eye(2).to_sparse())


def test_an_array_and_a_tensor_of_one_memory_are_refused():
    array = np.zeros(4)
    with pytest.raises(StoreError, match="the same memory"):
        copy_tree([torch.from_numpy(array)[1:], array])
    assert copy_tree([torch.zeros(4), array])[1] is not array


def test_a_device_that_is_not_there_is_named():
    with pytest.raises(retape.SnapshotError, match="which this process does not have"):
        tensor_from_array(np.ones(2), ["torch", "float64", "xpu", False, False])


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


def ping_pong():
    buffers = [torch.zeros(5, dtype=torch.float64) for _ in range(2)]

    def step(u, k):
        return torch.add(u, torch.tanh(W @ u) / (10 + k), out=buffers[k % 2])

    return step


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
    x = start().requires_grad_()
    u = x
    for k in range(STEPS):
        u = plain(u, k)
    (u * u).sum().backward()
    return u.detach(), x.grad


PLANS = {
    "space": retape.fixed_space(snapshots=3),
    "space of stages": retape.fixed_space(snapshots=2, stage=3),
    "time": retape.fixed_time(sweeps=2),
    "tiers": retape.tiers(memory=1, disk=2, stage=2),
}


@pytest.mark.parametrize(
    ("plan", "where"),
    [
        *((name, "memory") for name in PLANS),
        ("space", "disk"),
        ("tiers", "tiers"),
        ("time", "packed"),
    ],
)
@pytest.mark.parametrize(
    "step", [plain, in_place, recorded, by_numpy, ping_pong], ids=lambda f: f.__name__
)
def test_ways_to_write_a_step(step, plan, where, reference, tmp_path, monkeypatch):
    monkeypatch.setattr("os.fsync", lambda handle: None)
    store = {
        "memory": MemoryStore,
        "disk": lambda: DiskStore(tmp_path),
        "tiers": lambda: TieredStore(MemoryStore(capacity=1), DiskStore(tmp_path)),
        "packed": lambda: CodecStore(MemoryStore()),
    }[where]()
    x0 = start()
    found = run_program(
        ping_pong() if step is ping_pong else step,
        backward,
        x0,
        seed=lambda u: u.mul_(2),
        steps=STEPS,
        plan=PLANS[plan],
        store=store,
        key="a test",
    )
    # The order of a sum is that of the steps, so bits are equal.
    assert torch.equal(found.state, reference[0])
    assert torch.equal(found.cotangent, reference[1])
    assert torch.equal(x0, start())


def test_steps_keep_no_graph():
    held = []

    def step(u, k):
        held.append(u.grad_fn)
        return recorded(u, k)

    x0 = start().requires_grad_()
    run_program(step, backward, x0, seed=lambda u: 2 * u, steps=STEPS)
    assert held and not any(held)


def test_a_tape_with_a_graph_is_refused():
    def tape(u, k):
        u = u.detach().requires_grad_()
        after = plain(u, k)
        return after.detach(), (u, after)

    with pytest.raises(MachineError, match="autograd's graph"):
        run_program(plain, backward, start(), tape=tape, seed=lambda u: u, steps=STEPS)


def test_a_run_is_taken_up_again(tmp_path, reference):
    left = [30]

    def failing(u, k):
        left[0] -= 1
        if not left[0]:
            raise RuntimeError
        return plain(u, k)

    def call():
        return run_program(
            failing,
            backward,
            start(),
            seed=lambda u: 2 * u,
            steps=STEPS,
            plan=retape.fixed_space(snapshots=3),
            store=DiskStore(tmp_path, every=0),
            key="a test",
        )

    with pytest.raises(RuntimeError):
        call()
    found = call()
    assert found.report.resumed
    assert torch.equal(found.cotangent, reference[1])


def test_an_adjoint_is_checked():
    def wrong(u, k, g):
        return backward(u, k, g.clone()) + 0.01 * g

    assert retape.check_adjoint(retape.Program(plain, backward), start(), steps=4).ok
    assert not retape.check_adjoint(retape.Program(plain, wrong), start(), steps=4).ok


def test_without_torch_a_file_of_it_is_named(monkeypatch):
    store, _ = written(torch.ones(2))
    monkeypatch.delitem(sys.modules, "torch")
    with pytest.raises(retape.SnapshotError, match="Import `torch`"):
        store.get(0, 0, "disk")

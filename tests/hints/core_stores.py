"""Hints of stores, of what states consist of, and of `retape.forward`."""

# ruff: noqa: F401 - the statements of the rows use what is imported

from typing import Any

import numpy as np

import retape
from retape import DiskStore, MemoryStore, Tier, TieredStore
from retape.storage import AsyncStore, CodecStore, RankStore, bounded, copy_tree
from tests.hints.core_runs import SQUARE, VALUE, Unlike, adjoint, one
from tests.hints.processes import alone
from tests.hints.rows import Row, without

THREE = "plan=retape.tiers(levels=[Tier('a', 1), Tier('b', 1), Tier('c', 3)])"
EACH = retape.fixed_space(snapshots=2, stage=1)
BEHIND = "AsyncStore(DiskStore(tmp_path))"


class Ranks:
    """A communicator of two, the other of which says what a function makes of it."""

    def __init__(self, other: Any = lambda mine: mine) -> None:
        self.other = other

    def Get_rank(self) -> int:
        return 0

    def Get_size(self) -> int:
        return 2

    def allgather(self, sendobj: Any) -> Any:
        return [sendobj, self.other(sendobj)]


def a_step_ahead(mine: Any) -> Any:
    """What a rank says that is one step further."""
    return (mine[0] + 1, mine[1]) if type(mine) is tuple and len(mine) == 2 else mine


class Pair:
    """A state that is not known here: two numbers."""

    def __init__(self, a: float, b: float) -> None:
        self.a, self.b = a, b


class KnownPair(Pair):
    """The same, with what a state of one's own has."""

    def copy(self) -> "KnownPair":
        return KnownPair(self.a, self.b)

    def nbytes(self) -> int:
        return 16

    def to_arrays(self) -> Any:
        return [self.a, self.b]

    @classmethod
    def from_arrays(cls, arrays: Any) -> "KnownPair":
        return cls(*arrays)


def of_pairs(kind: type, **options: Any) -> Any:
    """The derivative of a**8 at 1.5, where each state is a pair."""

    def step(x: Any, k: int) -> Any:
        return kind(x.a * x.a, x.b)

    def back(x: Any, k: int, g: Any) -> Any:
        return kind(2 * x.a * g.a, g.b)

    start = kind(1.5, 0.0)
    given: dict[str, Any] = {"seed": lambda x: kind(1.0, 0.0), "steps": 3} | options
    return retape.adjoint(retape.Program(step, back), start, **given).cotangent.a


def packed(store: Any, factor: float = 1.0) -> Any:
    """The derivative of x**8 at 1.5, with three snapshots of arrays in a store."""
    field = 1.5 * factor * np.ones(40)
    return adjoint(x0=field, seed=np.ones_like, store=store)[0]


def ran(**options: Any) -> Any:
    """A run that waits for its way back: the derivative of x**8 at 1.5."""
    return retape.forward(SQUARE, 1.5, steps=3, **options)


def left_behind(folder: Any) -> Any:
    """A store whose run died, and of which no file can be read."""
    store = DiskStore(folder)
    store.open("a run")
    store.close()
    for name in ("record.npz", "record-before.npz"):
        (folder / name).write_bytes(b"x")
    return store


def no_locks(monkeypatch: Any) -> None:
    """As on a platform without locks of files."""
    without(monkeypatch, "fcntl", "msvcrt")


PAIRS = """
import dataclasses, retape

@dataclasses.dataclass
class Pair:
    a: float
    b: float

def registered():
    retape.register_state(
        Pair,
        copy=lambda x: Pair(x.a, x.b),
        nbytes=lambda x: 16,
        to_arrays=lambda x: [x.a, x.b],
        from_arrays=lambda tree: Pair(*tree),
    )

def put(folder):
    registered()
    store = retape.DiskStore(folder)
    store.open("a run")
    store.put(0, 0, "disk", Pair(1.0, 2.0), 16)
    store.close()

def get(folder):
    store = retape.DiskStore(folder)
    store.open("a run")
    try:
        print(store.get(0, 0, "disk").b)
    except retape.RetapeError as error:
        print(error)

"""


def another_process(folder: Any, prepares: str = "") -> str:
    """What a second process reads of what a first one has written."""
    alone(f"{PAIRS}put({str(folder)!r})")
    return alone(f"{PAIRS}{prepares}\nget({str(folder)!r})")


ROWS = [
    Row(
        "Pass one of as many parts, the nearest first, as in "
        "`TieredStore(near, TieredStore(next, far))`",
        f"adjoint({THREE},\n  store=TieredStore(MemoryStore(), DiskStore(tmp_path)))",
        "near, next, far = MemoryStore(), MemoryStore(), DiskStore(tmp_path)\n"
        f"adjoint({THREE}, store=TieredStore(near, TieredStore(next, far)))",
        VALUE,
    ),
    Row(
        "Pass a `MemoryStore`",
        "TieredStore(DiskStore(tmp_path), MemoryStore())",
        "store = TieredStore(MemoryStore(), DiskStore(tmp_path))\n"
        "adjoint(store=store, plan=retape.tiers(memory=1, disk=2))",
        VALUE,
    ),
    Row(
        "Pass the same number of steps and the same plan on all of them, and let "
        "`done`",
        "adjoint(plan=EACH, store=RankStore(DiskStore(tmp_path / 'a'),\n"
        "  Ranks(a_step_ahead)))",
        "adjoint(plan=EACH, store=RankStore(DiskStore(tmp_path / 'b'), Ranks()))",
        VALUE,
        written="Ranks()",
    ),
    Row(
        "Pass a `DiskStore`",
        "RankStore(MemoryStore(), Ranks())",
        "adjoint(store=RankStore(DiskStore(tmp_path), Ranks()))",
        VALUE,
    ),
    Row(
        "Pass `mpi4py.MPI.COMM_WORLD`",
        "RankStore(DiskStore(tmp_path), 2)",
        "adjoint(store=RankStore(DiskStore(tmp_path), Ranks()))",
        VALUE,
        written="Ranks()",
    ),
    Row(
        "Pass a store that outlives its process, such as a `DiskStore`",
        "AsyncStore(MemoryStore())",
        f"adjoint(store={BEHIND})",
        VALUE,
    ),
    Row(
        "Pass a store, such as a `DiskStore`",
        "CodecStore('disk')",
        "packed(CodecStore(DiskStore(tmp_path)))",
        VALUE,
    ),
    Row(
        "Pass one that does, such as a `retape.DiskStore`",
        "MemoryStore().record_due()",
        "retape.DiskStore(tmp_path).record_due()",
    ),
    Row(
        "Give their class the methods `copy`",
        "CodecStore(DiskStore(tmp_path, pack=list, unpack=tuple))",
        "assert hasattr(KnownPair, 'copy')\n"
        "of_pairs(KnownPair, store=CodecStore(MemoryStore()))",
        VALUE,
    ),
    Row(
        "pass 'bfloat16' or `retape.storage.bounded(relative=1e-4)`",
        "packed(CodecStore(MemoryStore(), 'float16'), 1e5)",
        "packed(CodecStore(MemoryStore(), retape.storage.bounded(relative=1e-4)))",
        VALUE,
    ),
    Row(
        "Pass {}, or `retape.storage.bounded(relative=1e-4)`",
        "CodecStore(MemoryStore(), 'zip')",
        "packed(CodecStore(MemoryStore(), retape.storage.bounded(relative=1e-4)))",
        VALUE,
    ),
    Row(
        'Pass an integer, or bytes as `capacity_bytes="2 GiB"`',
        "MemoryStore(capacity='2 GiB')",
        "adjoint(store=MemoryStore(capacity_bytes='2 GiB'))",
        VALUE,
    ),
    Row(
        "Give a class of your own the methods `copy`",
        "of_pairs(Pair)",
        "def copied(x):\n    return x.copy()\n"
        "copied(KnownPair(0.0, 0.0))\nof_pairs(KnownPair)",
        VALUE,
    ),
    Row(
        "Call `retape.register_state`",
        "another_process(tmp_path)",
        "another_process(tmp_path, 'registered()')  # calls retape.register_state",
        "'2.0'",
    ),
    Row(
        "Pass several seeds to `gradients`",
        "run = ran()\nrun.gradient(one)\nrun.gradient(one)",
        "run = ran()\n[g.cotangent for g in run.gradients([one, lambda x: 2.0])]",
        f"[{VALUE}, 2 * {VALUE}]",
    ),
    Row(
        "call `retape.forward`",
        "run = ran()\nrun.gradient(one)\nrun.gradient(one)",
        "retape.forward(SQUARE, 1.5, steps=3).gradient(one).cotangent",
        VALUE,
    ),
    Row(
        "Pass `seed`",
        "ran().gradient()",
        "ran().gradient(seed=one).cotangent",
        VALUE,
    ),
    Row(
        "Pass a `retape.MemoryStore`",
        "ran(store=DiskStore(tmp_path))",
        "ran(store=retape.MemoryStore()).gradient(one).cotangent",
        VALUE,
    ),
    Row(
        "call `retape.adjoint`",
        "ran(store=DiskStore(tmp_path))",
        "retape.adjoint(SQUARE, 1.5, seed=one, steps=3,\n"
        "  store=DiskStore(tmp_path)).cotangent",
        VALUE,
    ),
    Row(
        "Call it outside of `jax.jit`",
        "import jax\njax.jit(lambda x: adjoint(x0=x))(1.5)",
        "import jax\nadjoint(x0=jax.jit(lambda x: x)(1.5))",
        VALUE,
    ),
    Row(
        "Call `retape.adjoint`",
        "import torch\n"
        "torch.func.grad(lambda x: adjoint(x0=x, seed=torch.ones_like))(\n"
        "  torch.tensor(1.5))",
        "import torch\n"
        "found = retape.adjoint(SQUARE, torch.tensor(1.5), seed=torch.ones_like,\n"
        "  steps=3).cotangent\nfloat(found)",
        VALUE,
    ),
    Row(
        "call `.contiguous()`",
        "import torch\ncopy_tree(torch.ones(3, 1, device='meta').expand(3, 4))",
        "import torch\n"
        "copy_tree(torch.ones(3, 1, device='meta').expand(3, 4).contiguous()).shape",
        "(3, 4)",
    ),
    Row(
        "Set `jax_enable_x64`",
        "import jax\nof_doubles(tmp_path, jax.enable_x64(False))",
        "import jax\n"
        "with jax.enable_x64(True):\n    assert jax.config.jax_enable_x64\n"
        "    found = of_doubles(tmp_path, jax.enable_x64(True))\nfound",
        "[1.0, 1.0]",
    ),
    Row(
        "Use a `MemoryStore`",
        "no_locks(monkeypatch)\nadjoint(store=DiskStore(tmp_path))",
        "no_locks(monkeypatch)\nadjoint(store=MemoryStore())",
        VALUE,
    ),
    Row(
        "Call `clear()`",
        "left_behind(tmp_path / 'a').open('a run')",
        "store = left_behind(tmp_path / 'b')\nstore.clear()\nadjoint(store=store)",
        VALUE,
    ),
]


def of_doubles(folder: Any, within: Any) -> Any:
    """What a store gives back of two doubles of JAX's, in another setting."""
    import jax
    import jax.numpy as jnp

    store = DiskStore(folder)
    store.open("a run")
    try:
        with jax.enable_x64(True):
            store.put(0, 0, "disk", jnp.ones(2), 16)
        with within:
            return store.get(0, 0, "disk")
    finally:
        store.close()

"""Budgets of compiled models beside the compiler's own, by bytes and operations.

    python -m benchmarks.torch.compiled [mlp|gpt|vit ...]

The compiler's solvers at twenty shares, and ours at the memory that these were measured
to take. Both are counted by the same rules, peaks by the CPU's allocator.
"""

from collections import Counter
from collections.abc import Callable

import torch
from benchmarks.harness import Table, asked
from benchmarks.torch.allocator import peak_bytes
from benchmarks.torch.programs import Block, Patches, WithLoss, next_words, squares
from torch import Tensor, nn
from torch._functorch import config
from torch.utils.flop_counter import FlopCounterMode

import retape.torch

BUDGETS = 20
SOLVERS = ("dp", "greedy", "ilp")


class Patched(nn.Sequential):
    """Blocks over patches of an image, and the mean of what they make."""

    def forward(self, image: Tensor) -> Tensor:
        return super().forward(image).mean(1)


def mlp() -> tuple[nn.Module, Tensor]:
    """Twenty-four layers of one width."""
    layers = [m for _ in range(24) for m in (nn.Linear(64, 64), nn.GELU())]
    return WithLoss(nn.Sequential(*layers), squares), torch.randn(512, 64)


def gpt() -> tuple[nn.Module, Tensor]:
    """Six blocks, with the loss."""
    ends = nn.Embedding(200, 64), nn.Linear(64, 200)
    net = nn.Sequential(ends[0], *[Block(64) for _ in range(6)], ends[1])
    return WithLoss(net, next_words), torch.randint(0, 200, (4, 64))


def vit() -> tuple[nn.Module, Tensor]:
    """Six blocks over patches of an image."""
    blocks = [Block(64, causal=False) for _ in range(6)]
    net = nn.Sequential(Patched(Patches(64, 4), *blocks), nn.Linear(64, 10))
    return WithLoss(net, squares), torch.randn(4, 3, 32, 32)


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "mlp": mlp, "gpt": gpt, "vit": vit,
}  # fmt: skip


def compiled(model: nn.Module, backend: object) -> Callable[[Tensor], Tensor]:
    torch._dynamo.reset()
    return torch.compile(model, backend=backend, fullgraph=True)  # type: ignore


def measured(model: nn.Module, run: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """The peak of a step whose gradients are made in it."""
    model.zero_grad(set_to_none=True)
    run(x).backward()  # compiles
    model.zero_grad(set_to_none=True)
    return peak_bytes(lambda: run(x).backward())


def of_the_compiler(name: str, model: nn.Module, x: Tensor, every: int) -> None:
    """Its solvers, each beside our plan for the memory that it was measured to take."""
    plain, places = 0, Counter[str]()
    columns = "solver", "share", "measured", "Mflops again", "ours at that"
    table = Table(*columns, title=f"{name}: the compiler's own solvers")
    for solver in SOLVERS:
        for k in range(BUDGETS, -1, -every):
            share = k / BUDGETS
            patch = {
                "activation_memory_budget": share,
                "activation_memory_budget_solver": solver,
            }
            with config.patch(patch):
                run = compiled(model, "aot_eager")
                try:
                    peak = measured(model, run, x)
                except Exception as error:
                    table.row(solver, share, type(error).__name__, None, None)
                    break
            total = flops_of(model, x, patch)
            plain = total if share == 1 else plain
            budget = retape.torch.CompilerBudget(peak, backend="aot_eager")
            try:
                compiled(model, budget)(x)
                again = budget.plans[0].recomputed_flops
                ours: object = again / 1e6
                if share <= 0.9:
                    places[_compared(again, total - plain)] += 1
            except retape.BudgetError as error:
                ours = f"needs {error.least}"
            table.row(solver, share, peak, (total - plain) / 1e6, ours)
    print(f"places in which ours run again {dict(places)}")


def _compared(ours: int, theirs: int) -> str:
    return "less" if ours < theirs else "as much" if ours == theirs else "MORE"


def flops_of(model: nn.Module, x: Tensor, patch: dict[str, object]) -> int:
    """Operations of one step, out of the graphs that the compiler makes."""
    from torch._dynamo.backends.common import aot_autograd
    from torch._functorch.partitioners import min_cut_rematerialization_partition
    from torch.fx import GraphModule, Interpreter

    total = 0

    class Counting(Interpreter):
        def run(self, *args: object, **options: object) -> object:
            nonlocal total
            with FlopCounterMode(display=False) as counter:
                result = super().run(*args, **options)  # type: ignore
            total += counter.get_total_flops()
            return result

    def compiler(graph: GraphModule, inputs: object) -> Callable[..., object]:
        from functorch.compile import make_boxed_func

        return make_boxed_func(lambda *args: Counting(graph).run(*args))

    with config.patch(patch):
        backend = aot_autograd(
            fw_compiler=compiler, partition_fn=min_cut_rematerialization_partition
        )
        compiled(model, backend)(x).backward()
    return total


def main() -> None:
    given = asked(__doc__, MODELS, {"names": ["mlp"], "every": 20}, every=2)
    torch.set_num_threads(1)
    for name in given.names:
        torch.manual_seed(0)
        of_the_compiler(name, *MODELS[name](), given.every)


if __name__ == "__main__":
    main()

"""Budgets of compiled models: ours, and the compiler's own, by bytes and operations.

    python -m benchmarks.torch.compiled [mlp|gpt|vit ...] [--inductor]

Ours: twenty budgets from the least to what the compiler takes by itself; the peak that
the CPU allocator counts, and whether it is within the budget. The compiler's: its
solvers at twenty shares. Both are counted by the same rules, peaks by the allocator.

With `--inductor` ours are compiled by inductor, at six budgets, which takes minutes.
"""

import argparse
from collections import Counter
from collections.abc import Callable

import torch
from benchmarks.torch.allocator import peak_bytes
from torch import Tensor, nn
from torch._functorch import config
from torch.utils.flop_counter import FlopCounterMode

import retape.torch

BUDGETS = 20
SOLVERS = ("dp", "greedy", "ilp")


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.read, self.write = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, 3, self.heads, width // self.heads)
        q, k, v = self.read(self.first(x)).view(shape).permute(2, 0, 3, 1, 4)
        seen = nn.functional.scaled_dot_product_attention(
            q, k, v, is_causal=self.causal
        )
        x = x + self.write(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class Gpt(nn.Module):
    """Six blocks, with the loss."""

    def __init__(self, width: int = 64, words: int = 200) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.blocks = nn.Sequential(*[Block(width, 4, True) for _ in range(6)])

    def forward(self, text: Tensor) -> Tensor:
        scores = self.head(self.blocks(self.embed(text)))
        return nn.functional.cross_entropy(scores.flatten(0, 1), text.flatten())


class Vit(nn.Module):
    """Six blocks over patches of an image."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 4, stride=4)
        self.blocks = nn.Sequential(*[Block(width, 4, False) for _ in range(6)])
        self.head = nn.Linear(width, 10)

    def forward(self, image: Tensor) -> Tensor:
        x = self.patches(image).flatten(2).transpose(1, 2)
        return self.head(self.blocks(x).mean(1)).square().mean()


class Mlp(nn.Module):
    """Twenty-four layers of one width."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        layers = [m for _ in range(24) for m in (nn.Linear(width, width), nn.GELU())]
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).square().mean()


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "mlp": lambda: (Mlp(), torch.randn(512, 64)),
    "gpt": lambda: (Gpt(), torch.randint(0, 200, (4, 64))),
    "vit": lambda: (Vit(), torch.randn(4, 3, 32, 32)),
}


def compiled(model: nn.Module, backend: object) -> Callable[[Tensor], Tensor]:
    torch._dynamo.reset()
    return torch.compile(model, backend=backend, fullgraph=True)  # type: ignore


def measured(model: nn.Module, run: Callable[[Tensor], Tensor], x: Tensor) -> int:
    """The peak of a step whose gradients are made in it."""
    model.zero_grad(set_to_none=True)
    run(x).backward()  # compiles
    model.zero_grad(set_to_none=True)
    return peak_bytes(lambda: run(x).backward())


def of_ours(model: nn.Module, x: Tensor, backend: str, count: int) -> None:
    ample = retape.torch.CompilerBudget("1TB", backend=backend)
    whole = measured(model, compiled(model, ample), x)
    usual = ample.plans[0].usual_peak
    try:
        compiled(model, retape.torch.CompilerBudget(1, backend=backend))(x)
        raise SystemExit("one byte was enough")
    except retape.BudgetError as error:
        least = error.least or 0
    print(f"  by itself {whole:,} of {usual:,}; least {least:,} bytes")
    print("  budget      counted    measured   held  again: flops  operators")
    for k in range(count):
        memory = least + (usual - least) * k // (count - 1)
        budget = retape.torch.CompilerBudget(memory, backend=backend)
        peak = measured(model, compiled(model, budget), x)
        plan = budget.plans[0]
        held = "yes" if peak <= memory else "NO"
        print(
            f"  {memory:>10,} {plan.peak:>10,} {peak:>10,}   {held:>4} "
            f"{plan.recomputed_flops / 1e6:>11.1f} M {plan.recomputed:>9}"
        )


def of_the_compiler(model: nn.Module, x: Tensor) -> None:
    """Its solvers, each beside our plan for the memory that it was measured to take."""
    plain, places = 0, Counter[str]()
    print("  solver  share   measured  again: flops | ours at that: again")
    for solver in SOLVERS:
        for k in range(BUDGETS, -1, -2):
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
                    print(f"  {solver}: {type(error).__name__}")
                    break
            total = flops_of(model, x, patch)
            plain = total if share == 1 else plain
            budget = retape.torch.CompilerBudget(peak, backend="aot_eager")
            try:
                compiled(model, budget)(x)
                again = budget.plans[0].recomputed_flops
                ours = f"{again / 1e6:.1f} M"
                if share <= 0.9:
                    places[_compared(again, total - plain)] += 1
            except retape.BudgetError as error:
                ours = f"needs {error.least}"
            print(
                f"  {solver:>6}  {share:.2f} {peak:>10,} "
                f"{(total - plain) / 1e6:>11.1f} M | {ours}"
            )
    print(f"  places in which ours run again {dict(places)}")


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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", help="mlp, gpt, vit; all by default")
    parser.add_argument("--inductor", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.models or MODELS:
        torch.manual_seed(0)
        model, x = MODELS[name]()
        print(name)
        if options.inductor:
            of_ours(model, x, "inductor", 6)
        else:
            of_ours(model, x, "aot_eager", BUDGETS)
            of_the_compiler(model, x)


if __name__ == "__main__":
    main()

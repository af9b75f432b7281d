"""A byte budget for a compiled model, as a backend of `torch.compile`."""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from retape._arguments import truth
from retape._errors import BudgetError, PlanError, RetapeError, UnsupportedError
from retape.engines.eager._limits import read_bytes
from retape.engines.eager.compiled._backends import BACKENDS, compile_graph, partition
from retape.engines.eager.compiled._count import Count, PlanCounter, storages_of
from retape.engines.eager.compiled._front import front
from retape.engines.eager.compiled._joint import Joint


@dataclass(frozen=True, slots=True)
class CompiledPlan:
    """The plan of one compiled graph.

    Attributes:
        peak: Most bytes that its forward and backward hold, beyond what was there.
        saved: Bytes that its forward saves for the backward.
        recomputed: Operators that its backward runs again.
        recomputed_flops: Their floating-point operations.
        usual_peak: What the compiler would hold by itself.
        least: The least budget of the graph; `None` where it had not to be found, since
            the usual peak fits.
    """

    peak: int
    saved: int
    recomputed: int
    recomputed_flops: int
    usual_peak: int
    least: int | None


class CompilerBudget:
    """A backend of `torch.compile` that keeps within a number of bytes.

    It compiles as the backend that it is given does, and chooses for it what the
    forward saves and what the backward runs again. The budget is for all that the
    compiled forward and backward hold at once beyond inputs and parameters: what is
    saved, what they work on, results and gradients. Values are those of the compiled
    model without a budget: to the bit with `"aot_eager"`, up to rounding with
    `"inductor"`, which fuses other operators then. More memory never holds less or runs
    more again.

    Args:
        memory: Bytes, or text such as `"2GB"`.
        backend: `"inductor"`, or `"aot_eager"`, which runs operators one by one.
        per_graph: Where the compiler breaks a function into several graphs, hold the
            budget in each of them, instead of refusing.

    Attributes:
        plans: The plans of the graphs compiled so far. One that is compiled for
            inference alone has none.

    Raises:
        PlanError: If `memory` is no amount or `backend` none of the two.

    A compiled function raises, when it is called: `BudgetError` if the budget cannot be
    held, which says what would do; `UnsupportedError` if the function breaks into
    several graphs, or has sizes that change (`dynamic=False` gives each its plan).

    Examples:
        >>> import torch, retape.torch
        >>> layers = [torch.nn.Linear(32, 32), torch.nn.Tanh()] * 8
        >>> budget = retape.torch.CompilerBudget("300kB", backend="aot_eager")
        >>> model = torch.compile(torch.nn.Sequential(*layers), backend=budget)
        >>> model(torch.ones(256, 32)).sum().backward()
        >>> budget.plans[0].peak <= 300_000 < budget.plans[0].usual_peak
        True
    """

    def __init__(
        self,
        memory: int | float | str,
        *,
        backend: str = "inductor",
        per_graph: bool = False,
    ) -> None:
        self.memory = read_bytes(memory)
        if backend not in BACKENDS:
            raise PlanError(
                f"`backend={backend!r}` has no partitioner that could be given a "
                'budget. Pass "inductor" or "aot_eager".'
            )
        self.backend, self.per_graph = backend, truth("per_graph", per_graph)
        self.plans: list[CompiledPlan] = []

    def __call__(
        self, graph: fx.GraphModule, inputs: Any, **options: Any
    ) -> Callable[..., Any]:
        """Compile one graph, as `torch.compile` calls it."""
        refused: list[RetapeError] = []

        def split(
            joint: fx.GraphModule, joint_inputs: Any, **more: Any
        ) -> tuple[fx.GraphModule, fx.GraphModule]:
            try:
                return partition(joint, joint_inputs, self._choose, **more)
            except RetapeError as error:
                refused.append(error)
                raise

        try:
            self._refuse_breaks(graph)
            return compile_graph(self.backend, graph, inputs, split, options)
        except RetapeError as error:
            return _refusing(error)
        except Exception:
            if not refused:
                raise
            return _refusing(refused[0])

    def __repr__(self) -> str:
        return f"CompilerBudget({self.memory}, backend={self.backend!r})"

    def _choose(self, joint: Joint, usual: list[fx.Node]) -> list[fx.Node]:
        place = {node: k for k, node in enumerate(joint.nodes)}
        usually = frozenset(place[node] for node in usual)
        counter = PlanCounter(joint, usually)
        by_itself = counter(usually)
        if by_itself.peak <= self.memory:
            # Not `usual` itself: where the forward overwrites what it has read, that
            # would be computed again from what was written (PyTorch 2.13).
            return self._take(joint, by_itself, by_itself.peak, None)
        plans = front(counter, usually)
        least, best = plans[0].peak, plans.best(self.memory)
        if best is None:
            raise BudgetError(
                f"`memory={self.memory}` bytes are too few for a compiled graph of "
                f"`{len(joint.nodes)}` nodes, whose gradients and results count, too; "
                f"it needs at least `{least}`. Give that much.",
                least=least,
            )
        return self._take(joint, counter(best.keep), by_itself.peak, least)

    def _take(
        self, joint: Joint, plan: Count, usual_peak: int, least: int | None
    ) -> list[fx.Node]:
        """Note a plan; the nodes that it saves."""
        again = [k for k in plan.again if joint.made[k]]
        self.plans.append(
            CompiledPlan(
                peak=plan.peak,
                saved=sum(joint.nbytes[s] for s in storages_of(joint, plan.kept)),
                recomputed=len(again),
                recomputed_flops=sum(joint.flops[k] for k in again),
                usual_peak=usual_peak,
                least=least,
            )
        )
        kept = [joint.nodes[k] for k in sorted(plan.kept)]
        # Functions that `torch.scan` and its like are given are in both graphs.
        return [node for node in kept if node.op != "get_attr"]

    def _refuse_breaks(self, graph: fx.GraphModule) -> None:
        reason = getattr(graph, "compile_subgraph_reason", None)
        if self.per_graph or reason is None or not reason.graph_break:
            return
        raise UnsupportedError(
            "The compiler breaks the function into several graphs "
            f"(`{reason.reason}`), and a budget for one says nothing of all of them. "
            "Mend the break (`fullgraph=True` shows where it is), or pass "
            "`per_graph=True`: each graph holds the budget then."
        )


def _refusing(error: RetapeError) -> Callable[..., Any]:
    """A compiled function that refuses: what a backend raises is wrapped by Dynamo."""

    def refuse(*args: Any) -> Any:
        del args
        raise copy.copy(error) from None

    return refuse

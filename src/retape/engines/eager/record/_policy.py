"""Policies: operators whose results are kept whatever the budget."""

from collections.abc import Callable, Collection
from typing import Any, TypeAlias

from torch._ops import OpOverload, OpOverloadPacket
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext

from retape._errors import PlanError, UnsupportedError
from retape.engines.eager._torch_compile import OperatorWatch
from retape.engines.eager.record._regions import RegionNames

Operator: TypeAlias = OpOverload | OpOverloadPacket
Policy: TypeAlias = Callable[[Any], bool] | Collection[Any] | Operator | RegionNames

_PRODUCTS = frozenset(
    "aten::" + name
    for name in (
        "_scaled_dot_product_cudnn_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_mm", "addbmm", "addmm", "addmv", "baddbmm", "bmm", "convolution",
        "linear", "mm", "mv",
    )
)  # fmt: skip


def matrix_products(func: Any) -> bool:
    """A policy: keep what takes long to compute again for the bytes that it has.

    These are products of matrices, convolutions and fused attention. Everything between
    them, which moves as many bytes and computes little, is run again.

    Args:
        func: An operator, as PyTorch's dispatcher passes it.

    Examples:
        >>> import torch
        >>> matrix_products(torch.ops.aten.mm.default)
        True
        >>> matrix_products(torch.ops.aten.gelu.default)
        False
    """
    return func._schema.name in _PRODUCTS


def as_collection(
    policy: Policy | None,
) -> Callable[[Any], bool] | Collection[Any] | RegionNames | None:
    """A policy; one operator, which can be called, is a collection and no function."""
    return (policy,) if isinstance(policy, Operator) else policy


def as_function(policy: Policy | None) -> Callable[[Any], bool] | None:
    """A policy as a function of operators; `None` if it names regions.

    Raises:
        PlanError: If it names something that is never asked about.
    """
    policy = as_collection(policy)
    if policy is None or isinstance(policy, RegionNames):
        return None
    if callable(policy):
        return lambda func: saves(_asked(policy, func), func)
    if isinstance(policy, str) or not isinstance(policy, Collection):
        raise PlanError(_no_policy(policy))
    kept = frozenset(policy)
    for each in kept:
        if not isinstance(each, Operator):
            raise PlanError(_no_policy(each))
    return lambda func: func in kept or func.overloadpacket in kept


def _asked(policy: Callable[[Any], Any], func: Any) -> object:
    try:
        return policy(func)
    except TypeError as error:  # a function of tensors, say
        raise PlanError(_no_policy(policy)) from error


def saves(answer: object, func: Any) -> bool:
    """Whether an answer says that the result of an operator is kept.

    Raises:
        PlanError: If it is neither a truth value nor one of PyTorch's own answers.
    """
    if isinstance(answer, CheckpointPolicy):
        return answer in (CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE)
    if answer is not True and answer is not False:
        raise PlanError(
            f"A policy answered `{answer!r}` about `{func}`, which says neither that "
            "its result is kept nor that it is not. Return `True` or `False`, or one "
            "of `torch.utils.checkpoint.CheckpointPolicy`."
        )
    return answer


def _no_policy(value: object) -> str:
    return (
        f"`policy` has `{value!r}`, which is no operator of the dispatcher, so it "
        "would keep nothing. Pass operators such as `torch.ops.aten.mm.default`, a "
        "function that is asked about each of them, `retape.torch.matrix_products`, or "
        "`retape.torch.names(save=[...])` for regions."
    )


class SelectivePolicy(OperatorWatch):
    """PyTorch's own form of a policy, which also looks at the arguments.

    Enter it outside of the recorder: the operator that the recorder runs comes here
    next, and right after it the recorder asks whether to keep the result.

    Args:
        first: The first of the contexts that `context_fn` makes.

    Raises:
        UnsupportedError: If it is none of PyTorch's selective checkpointing.
    """

    def __init__(self, first: Any) -> None:
        super().__init__()
        policy = getattr(first, "policy_fn", None)
        if policy is None:
            raise UnsupportedError(
                "`context_fn` is run around a second call of the function, and there "
                f"is none here: its contexts are `{type(first).__name__}`. Only "
                "`create_selective_checkpoint_contexts` is understood; otherwise name "
                "the operators to keep in `policy=`."
            )
        self._policy: Callable[..., Any] = policy
        self._called: tuple[Any, dict[str, Any], Any] = ((), {}, None)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Run an operator, and note what it was given and gave."""
        result = func(*args, **(kwargs or {}))
        self._called = args, kwargs or {}, result
        return result

    def keeps(self, func: Any) -> bool:
        """Tell whether the result of the operator that has just been run is kept."""
        args, kwargs, result = self._called
        self._called = (), {}, None  # hold no tensor longer than needed
        context = SelectiveCheckpointContext(is_recompute=False)
        context.op_output = result  # PyTorch 2.11 does not take it
        return saves(self._policy(context, func, *args, **kwargs), func)

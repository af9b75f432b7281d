"""Traits of PyTorch's public functions, for the record of a loop."""

import functools
from collections.abc import Callable
from enum import Enum
from typing import Any

import torch
from torch._ops import HigherOrderOperator


class CallKind(Enum):
    """Traits of one call, for the record."""

    CALL = "note it"
    RANDOM = "note it with the state of the generator, if it draws"
    GRAD_MODE = "it sets gradient mode"
    QUESTION = "it makes no tensor of the program"
    REQUIRES_GRAD = "it asks what is known from the record"
    REFUSED = "it cannot be run again"


_RANDOM = (
    "drop", "rand", "bernoulli", "multinomial", "normal", "poisson", "rrelu", "gumbel",
    "attention", "lstm", "gru", "rnn", "sample", "fractional",
)  # fmt: skip
_QUESTIONS = frozenset(
    {
        "size", "dim", "stride", "item", "numel", "is_floating_point", "tolist",
        "is_complex", "element_size", "storage_offset", "is_contiguous", "__len__",
        "__bool__", "__float__", "__int__", "__index__", "__repr__", "__format__",
        "ndimension", "nelement", "get_device", "is_tensor", "equal", "allclose",
        "is_same_size", "result_type", "is_nonzero", "__contains__", "data_ptr",
        "shape", "dtype", "device", "ndim", "is_cuda", "layout", "is_sparse",
        "is_quantized", "is_meta", "is_mkldnn", "itemsize", "nbytes", "names",
        "is_mps", "is_xpu", "is_cpu", "is_nested", "__hash__", "is_inference",
    }
)  # fmt: skip
_REFUSED = frozenset(
    {
        "backward", "grad", "grad_fn", "is_leaf", "retain_grad", "register_hook",
        "register_post_accumulate_grad_hook", "retains_grad", "output_nr",
        "_backward_hooks",
        "__setitem__", "__set__", "__delete__", "empty", "empty_like", "new_empty",
        "empty_strided", "new_empty_strided", "empty_permuted", "batch_norm",
        "instance_norm", "_version", "untyped_storage", "numpy", "__array__",
        "__dlpack__", "checkpoint", "__deepcopy__", "_make_dual",
        # They update statistics, and no version shows it.
        "fused_moving_avg_obs_fake_quant", "native_batch_norm", "cudnn_batch_norm",
        "miopen_batch_norm", "batch_norm_update_stats", "batch_norm_gather_stats",
        "batch_norm_gather_stats_with_counts",
    }
)  # fmt: skip
_NO_WRITES = ("__invert__", "__index__", "__int__")
kinds: dict[Any, CallKind] = {torch._C._set_grad_enabled: CallKind.GRAD_MODE}


def call_kind_of(function: Any) -> CallKind:
    """The kind of a public function or method of PyTorch."""
    kind = kinds.get(function)
    if kind is None:
        kind = kinds[function] = _classify(function)
    return kind


def _classify(function: Any) -> CallKind:
    if isinstance(function, HigherOrderOperator):  # it is given functions to run
        return CallKind.REFUSED
    name = getattr(function, "__name__", "")
    if name == "__get__":
        name = getattr(function.__self__, "__name__", "")
    if name == "requires_grad":
        return CallKind.REQUIRES_GRAD
    inplace = name.endswith("_") and not name.endswith("__")
    arithmetic = name.startswith("__i") and name not in _NO_WRITES
    if inplace or arithmetic or name in _REFUSED:
        return CallKind.REFUSED
    if name in _QUESTIONS:
        return CallKind.QUESTION
    if name in _BY_GRADIENT:
        return CallKind.RANDOM  # looked at more closely
    if name.endswith("_cell"):  # one step of a recurrent layer draws nothing
        return CallKind.CALL
    return CallKind.RANDOM if any(part in name for part in _RANDOM) else CallKind.CALL


# oneDNN has one LSTM for training and one for inference, and they round in different
# ways where there is no AVX-512 (PyTorch 2.13, 2026-11-22: off by 6e-8). Singular and
# eigenvalues are computed with their vectors where these are needed for a gradient.
_BY_GRADIENT = frozenset(
    {
        "lstm", "linalg_svdvals", "linalg_eigvalsh", "linalg_norm", "linalg_cond",
        "linalg_matrix_norm", "nuclear_norm", "norm", "svdvals", "eigvalsh",
    }
)  # fmt: skip


# What they make has no gradient, whatever they are given. Taken for one that has, a
# value goes on to functions that have no derivative, `torch.unique` say.
_WITHOUT_GRADIENT = frozenset(
    {
        "asarray", "data", "detach", "detach_copy", "full_like", "new_full", "new_ones",
        "new_tensor", "new_zeros", "ones_like", "rand_like", "randint_like",
        "randn_like", "tensor", "zeros_like",
    }
)  # fmt: skip


@functools.cache
def has_gradient(function: Any) -> bool:
    """False of functions whose results never lead back to what they are given."""
    name = getattr(function, "__name__", "")
    if name == "__get__":
        name = getattr(function.__self__, "__name__", "")
    return name not in _WITHOUT_GRADIENT


# Each runs many operators as one call, which can only be reversed whole: an LSTM of
# four layers took 338 kB in a budget of 162 (PyTorch 2.13, 2026-11-26).
_FUSED = frozenset(
    {"lstm", "gru", "rnn_tanh", "rnn_relu", "multi_head_attention_forward"}
)


def is_fused(function: Any) -> bool:
    """True of functions whose backward takes bytes that nobody knows beforehand."""
    return getattr(function, "__name__", "") in _FUSED


def chooses_kernel_by_gradient(function: Any) -> bool:
    """True of functions whose bits depend on whether a graph is made."""
    return getattr(function, "__name__", "") in _BY_GRADIENT


@functools.cache
def as_with_graph(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with the bits that it has where a graph is made."""

    @functools.wraps(function)
    def run(first: torch.Tensor, *others: Any, **named: Any) -> Any:
        if torch.is_grad_enabled():
            return function(first, *others, **named)
        with torch.enable_grad():
            made = function(first.detach().requires_grad_(), *others, **named)
        if isinstance(made, torch.Tensor):
            return made.detach()
        return tuple(tensor.detach() for tensor in made)

    return run


def attention_is_chosen() -> bool:
    """Tell whether a program has said which kernels attention may take.

    A function that runs again in the backward would find another choice there.
    """
    allowed = torch.backends.cuda
    return not (
        allowed.flash_sdp_enabled()
        and allowed.mem_efficient_sdp_enabled()
        and allowed.math_sdp_enabled()
    )

"""Temporaries of autograd's formulas and of some kernels, in tensors.

Going back through an operator takes the cotangents of what it made and of what it read.
Many formulas make nothing else: they are *lean*. Others hold tensors on the way, each
as large as the largest that the operator read or made, and the cotangent of a smaller
operand is first made in full and then summed. How many there are was measured, formula
by formula; a test measures it again.
"""

from collections.abc import Sequence
from typing import Any

from retape.engines.eager.trace._geometry import Geometry

_LEAN = frozenset(
    "aten::" + name
    for name in (
        "_adaptive_avg_pool2d", "_linalg_slogdet", "_linalg_solve_ex", "_log_softmax",
        "_softmax", "_to_copy", "_unsafe_view", "_upsample_bilinear2d_aa",
        "_upsample_nearest_exact2d", "adaptive_max_pool2d", "add", "addcmul", "addmm",
        "addmv", "addr", "avg_pool2d", "baddbmm", "block_diag", "bmm", "cat", "celu",
        "clone", "col2im", "constant_pad_nd", "copy", "copy_", "cummax", "cummin",
        "diag_embed", "dot", "elu", "embedding", "exp", "flip",
        "fractional_max_pool2d", "gather", "gelu", "glu", "hardshrink", "hardsigmoid",
        "hardswish", "hardtanh", "huber_loss", "im2col", "index", "index_add",
        "index_copy", "index_fill", "index_put", "index_select", "kthvalue",
        "leaky_relu", "lerp.Scalar", "linalg_cross", "log", "log_sigmoid_forward",
        "masked_fill", "max.dim", "max_pool2d_with_indices", "max_pool3d_with_indices",
        "mean", "median.dim", "min.dim", "mish", "mm", "mode", "mse_loss",
        "multi_margin_loss", "mv", "native_group_norm", "native_layer_norm", "neg",
        "nll_loss_forward", "pixel_shuffle", "put", "reflection_pad2d", "relu",
        "repeat", "replication_pad2d", "roll", "rrelu_with_noise", "scatter.src",
        "scatter_add", "select_scatter", "sigmoid", "silu", "slice_scatter",
        "smooth_l1_loss", "softplus", "softshrink", "sort", "stack", "sub", "sum",
        "take", "tanh", "threshold", "topk", "trace", "tril", "triu",
        "upsample_bicubic2d", "upsample_bilinear2d", "upsample_linear1d",
        "upsample_nearest2d",
    )
)  # fmt: skip
# Of an operator that is not here.
_OTHERS = 3
_SPARE = {
    "aten::" + name: count
    for count, names in (
        (0, ("_prelu_kernel", "div", "mul")),
        (
            1,
            (
                "_embedding_bag", "clamp", "clamp_min", "clamp_max", "copysign",
                "cosh", "exp2", "expm1", "fmax", "fmin", "fmod", "hypot", "lerp",
                "lgamma", "linalg_vector_norm", "log10", "log1p", "log2",
                "native_batch_norm", "prod", "remainder", "sin", "sinh", "sqrt", "std",
                "var", "where",
            ),
        ),
        (
            2,
            (
                "_scaled_dot_product_flash_attention_for_cpu", "abs", "amax", "amin",
                "atan", "cos", "cumsum", "dist", "linalg_inv_ex", "logsumexp",
                "maximum", "minimum", "nan_to_num", "nansum", "polar", "pow",
                "reciprocal", "rsqrt", "std_mean", "tan", "var_mean", "xlogy",
            ),
        ),
        (
            3,
            (
                "_fft_r2c", "_linalg_eigh", "_linalg_svd", "_trilinear", "acosh",
                "addcdiv", "aminmax", "asinh", "linalg_cholesky_ex", "logaddexp",
                "logaddexp2", "max", "median", "min", "pow.Tensor_Tensor",
            ),
        ),
        (4, ("_sample_dirichlet", "asin", "cumprod", "erf", "erfc", "erfinv")),
        (5, ("_cdist_forward", "_euclidean_dist", "acos", "atan2", "angle")),
        (6, ("linalg_lu_factor_ex",)),
        (7, ("linalg_matrix_sqrth", "logcumsumexp", "sinc")),
        (8, ("renorm",)),
        (12, ("linalg_pinv", "scatter_reduce")),
        (13, ("linalg_lstsq",)),
        (55, ("linalg_matrix_exp",)),
    )
    for name in names
}  # fmt: skip
_SPARE["aten::prod.dim_int"] = 2
# More of them where not only the first operand gets a cotangent.
_SECOND = {"aten::div": 2, "aten::pow.Tensor_Tensor": 2}
# Norms that count where the largest number is, or take a power on the way.
_PLAIN_NORMS = (None, 1, 2, 3)
_MORE_FOR_NORMS = 3


def _names(func: Any) -> tuple[str, ...]:
    """The overload, the operator, and the operator that writes elsewhere."""
    name: str = func._schema.name
    return func.name(), name, name.removesuffix("_")


def is_lean(func: Any) -> bool:
    """Tell whether the formula of an operator makes nothing but cotangents."""
    return any(name in _LEAN for name in _names(func))


def spare_tensors(
    func: Any,
    args: Sequence[Any],
    geometries: Sequence[Geometry],
    differentiable: Sequence[bool],
) -> int:
    """Tensors that a formula which is not lean holds beside cotangents.

    Args:
        func: The overload.
        args: Its positional arguments.
        geometries: Of the tensors among all arguments, in order.
        differentiable: Whether each of them may get a cotangent.
    """
    names = _names(func)
    found = next((_SPARE[name] for name in names if name in _SPARE), _OTHERS)
    if any(differentiable[1:]):
        found += next((_SECOND[name] for name in names if name in _SECOND), 0)
    if "aten::linalg_vector_norm" in names:
        plain = len(args) < 2 or args[1] in _PLAIN_NORMS
        found += 0 if plain else _MORE_FOR_NORMS
    kinds = {geometry.dtype for geometry in geometries}
    # Operands are brought to one type first; complex ones are conjugated.
    found += len(kinds) > 1
    return found + 2 * any(dtype.is_complex for dtype in kinds)

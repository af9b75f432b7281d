"""CUDA graphs: the options that put loops into them."""

from __future__ import annotations

_BUFFERED = "FUSION CUBLAS CUBLASLT CUSTOM_CALL CUDNN DYNAMIC_SLICE_FUSION"
"""XLA's own list, in the releases read (openxla/xla, November 2026)."""


def gpu_options() -> dict[str, str]:
    """Options for `jax.jit` that let a GPU run loops and conditionals by itself.

    With them XLA puts loops of any kind and conditionals into CUDA graphs, so that the
    host does not wait for their tests. They are off by default in XLA, need CUDA 12.3,
    and take effect only in the outermost `jit`, for loops all of whose operations a
    graph can hold: none of host callbacks, foreign calls and library calls that are not
    marked for it. Retape was not tried with these options on a GPU.

    Examples:
        >>> import jax, retape.jax
        >>> double = jax.jit(lambda x: 2 * x, compiler_options=retape.jax.gpu_options())
        >>> float(double(3.0))
        6.0
    """
    names = [*_BUFFERED.split(), "WHILE", "CONDITIONAL"]
    return {"xla_gpu_enable_command_buffer": ",".join(names)}

"""A mode that sees the operators that a thread runs, without PyTorch's compiler."""

from torch.utils._python_dispatch import TorchDispatchMode


class OperatorWatch(TorchDispatchMode):
    """The frame of a dispatch mode: what it does is said in `__torch_dispatch__`.

    It sees operators that are given functions, too, as others.
    """

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Do without a wrapper that costs a microsecond at each operator."""
        return False

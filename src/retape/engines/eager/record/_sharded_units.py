"""A unit of FSDP2: parameters that are gathered together, and the bytes they take.

PyTorch has no public function for them: they are read off its group of parameters
(`torch.distributed.fsdp._fully_shard`, tried in the releases 2.11, 2.13 and
2.15). In another one an `AttributeError` tells that it has them elsewhere.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor


class ShardedUnit:
    """Sizes in bytes, and what becomes of a unit.

    Attributes:
        whole: Of the gathered parameters.
        buffer: Of what they are gathered into.
        copies: What is taken for a moment while that is filled.
        gradients: Of the whole gradients.
        reduced: Of the buffer in which these are summed over the processes.
        reducing: What is taken for a moment while they are.
    """

    def __init__(self, group: Any) -> None:
        self._group = group
        world = getattr(group.mesh_info, "shard_mesh_size", 1)
        on_host = group.device.type == "cpu"  # Gloo, which works on copies
        padded = [
            each._sharded_param_data.numel() * world for each in group.fsdp_params
        ]
        params = list(zip(group.fsdp_params, padded, strict=True))
        self.whole = sum(_gathered(each, n) for each, n in params)
        self.buffer = self.whole if world > 1 else 0
        cast = any(each.param_dtype is not None for each in group.fsdp_params)
        self.copies = self.buffer // world if cast else 0
        self.copies = max(self.copies, self.buffer if on_host else 0)
        trained = [p for p in params if p[0].sharded_param.requires_grad]
        self.gradients = sum(_whole_gradient_bytes(each) for each, _ in trained)
        self.reduced = sum(n * _reduced_type(each).itemsize for each, n in trained)
        self.reducing = self.reduced // world + (self.reduced if on_host else 0)
        self.reducing += sum(_cast_bytes(each, n // world) for each, n in trained)
        self.frees_after_backward: bool = group.reshard_after_backward
        self.reduces: bool = group.reduce_grads
        self.reduced_at_once: int = getattr(
            group.comm_ctx, "reduce_scatter_max_input_buffers", 1
        )

    @property
    def stays(self) -> bool:
        """Whether it stays gathered from its forward to its backward."""
        return not self._group._reshard_after_forward

    def is_inside(self, other: "ShardedUnit") -> bool:
        """Whether its first module is inside of another unit's."""
        first = self._group.modules[0]
        return any(first in set(each.modules()) for each in other._group.modules)

    def gathered_bytes(self) -> int:
        """The bytes of its whole parameters now: none if they are freed."""
        return sum(map(_allocated, self._whole_parameters()))

    def _whole_parameters(self) -> Iterator[Tensor]:
        for each in self._group.fsdp_params:
            yield from each.all_gather_outputs
            yield from each._unsharded_inner_tensors

    def resharded_bytes(self) -> int:
        """The bytes of the parts that are kept of it among fewer processes."""
        parts = (
            getattr(each, "_sharded_post_forward_param_data", None)
            for each in self._group.fsdp_params
        )
        return sum(_allocated(part) for part in parts if part is not None)

    def buffers(self) -> Iterator[Tensor]:
        """What gathering takes now, for this unit or the last one."""
        if self.is_on_its_way():
            yield self._group._all_gather_result.all_gather_output
        last = self._group.comm_ctx.all_gather_state
        if last is not None:
            yield last.all_gather_result.all_gather_output

    def last_buffer_bytes(self) -> int:
        """The bytes that the last unit was gathered into, freed for this one's."""
        last = self._group.comm_ctx.all_gather_state
        return (
            0 if last is None else _allocated(last.all_gather_result.all_gather_output)
        )

    def is_on_its_way(self) -> bool:
        """Whether it is gathered already, into its buffer."""
        return self._group._all_gather_result is not None

    def _state(self) -> Any:
        return self._group.modules[0]._get_fsdp_state()

    @property
    def is_root(self) -> bool:
        """Whether all other units are in modules inside of it."""
        return bool(self._state()._is_root)

    def all_groups(self) -> list[Any]:
        """Of this unit and of those in modules inside of it, in their order."""
        states = self._state()._state_ctx.all_states
        return [group for state in states for group in _groups(state)]

    def fetched_ahead(self) -> list[Any]:
        """The groups that are to be gathered while this one's forward runs."""
        states = self._state()._states_to_forward_prefetch
        return [group for state in states for group in _groups(state)]

    def fetched_ahead_in_backward(
        self, before: Sequence["ShardedUnit"]
    ) -> list["ShardedUnit"]:
        """Those gathered while its backward runs, of units that ran before it."""
        chosen = self._state()._states_to_backward_prefetch
        if not chosen:
            return list(before[-1:])
        groups = {id(g) for state in chosen for g in _groups(state)}
        return [unit for unit in dict.fromkeys(before) if id(unit._group) in groups]


def _groups(state: Any) -> list[Any]:
    several = getattr(state, "_fsdp_param_groups", None)
    if several is not None:
        return several
    return [group for group in (state._fsdp_param_group,) if group is not None]


def _allocated(tensor: Tensor) -> int:
    return tensor.untyped_storage().nbytes()


def _gathered(param: Any, padded: int) -> int:
    if param.all_gather_outputs:
        return sum(
            each.numel() * each.element_size() for each in param.all_gather_outputs
        )
    return padded * _type(param).itemsize


def _whole_gradient_bytes(param: Any) -> int:
    return param._orig_size.numel() * _gradient_type(param).itemsize


def _cast_bytes(param: Any, numbers: int) -> int:
    own = param.orig_dtype
    return 0 if _reduced_type(param) is own else numbers * own.itemsize


def _type(param: Any) -> Any:
    return param.param_dtype or param.orig_dtype


def _gradient_type(param: Any) -> Any:
    """From PyTorch 2.15 on it need not be that of the gathered parameter."""
    return getattr(param, "unsharded_grad_dtype", None) or _type(param)


def _reduced_type(param: Any) -> Any:
    return param.reduce_dtype or _gradient_type(param)

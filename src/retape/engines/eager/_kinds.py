"""What the trace must know about an operator, read once from its schema.

Schemas do not tell the whole truth. `native_batch_norm` overwrites its running
statistics without declaring it, so the exceptions stand in a table here. Operators
that only rewrite a tensor's size and strides (`transpose_`, `set_`) change no storage
and count as views, because the trace describes a tensor by its storage and geometry.
"""

from dataclasses import dataclass
from typing import Any

import torch

from ._errors import UnsupportedError
from ._formulas import is_lean

__all__ = ["Kind", "kind_of"]

_HIDDEN_WRITES: dict[str, tuple[int | str, ...]] = {
    "aten::native_batch_norm": (3, 4),
    "aten::cudnn_batch_norm": (3, 4),
    "aten::miopen_batch_norm": (3, 4),
    "aten::batch_norm_update_stats": (1, 2),
}
_UNINITIALISED = frozenset(
    {
        "aten::empty",
        "aten::empty_like",
        "aten::empty_permuted",
        "aten::empty_strided",
        "aten::new_empty",
        "aten::new_empty_strided",
    }
)
_RESIZERS = frozenset({"aten::resize_", "aten::resize_as_"})
# Their kernels may bring all that they read and make into a layout of their own first,
# forward and backward.
_COPYING = frozenset(
    {
        "aten::_convolution",
        "aten::_cudnn_rnn",
        "aten::convolution",
        "aten::convolution_overrideable",
        "aten::cudnn_convolution",
        "aten::mkldnn_convolution",
        "aten::mkldnn_rnn_layer",
    }
)
# Their results include a workspace, parts of which nobody writes.
_SCRATCH = frozenset({"aten::mkldnn_rnn_layer", "aten::_cudnn_rnn", "aten::miopen_rnn"})
# Their result depends on other processes: it is kept, never computed again.
_COLLECTIVE_NAMESPACES = frozenset(
    {"c10d", "_c10d_functional", "c10d_functional", "_dtensor", "symm_mem"}
)


@dataclass(frozen=True, slots=True)
class Kind:
    """How an operator treats the storages that it touches.

    Attributes:
        view: It makes no storage and writes none; there is nothing to replay.
        writes: Positions (or names, if keyword-only) of the arguments overwritten.
        random: It draws from a generator.
        chance: Position of a `dropout_p`: where it is zero, nothing is drawn.
        uninitialised: Its result holds whatever the memory held.
        scratch: So do parts of one of its results.
        collective: Its result depends on other processes.
        lean: Its backward has no temporaries of the size of its result.
        copying: Its kernels work on copies of what it reads and makes.
        varying: The geometry of its result depends on values.
    """

    view: bool
    writes: tuple[int | str, ...]
    random: bool
    chance: int | None
    uninitialised: bool
    scratch: bool
    collective: bool
    lean: bool
    copying: bool
    varying: bool


_table: dict[Any, Kind] = {}


def _declared_writes(schema: Any) -> tuple[int | str, ...]:
    return tuple(
        argument.name if argument.kwarg_only else position
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _dropout_position(schema: Any) -> int | None:
    names = [argument.name for argument in schema.arguments]
    return names.index("dropout_p") if "dropout_p" in names else None


def _read_schema(func: Any) -> Kind:
    schema, tags = func._schema, func.tags
    name: str = schema.name
    if func.namespace == "fsdp":
        raise UnsupportedError(
            f"`{name}` gathers sharded parameters (FSDP2) inside of a recomputation, "
            "which would run again on parameters that are gone. Make each unit a "
            "region: `fully_shard(retape.torch.Checkpointed(unit))`."
        )
    reshapes = torch.Tag.inplace_view in tags and name not in _RESIZERS
    writes = () if reshapes else _HIDDEN_WRITES.get(name) or _declared_writes(schema)
    aliases = bool(schema.returns) and all(
        result.alias_info is not None for result in schema.returns
    )
    return Kind(
        view=reshapes or (aliases and not writes),
        writes=writes,
        random=torch.Tag.nondeterministic_seeded in tags,
        chance=_dropout_position(schema),
        uninitialised=name in _UNINITIALISED | _RESIZERS,
        scratch=name in _SCRATCH,
        collective=func.namespace in _COLLECTIVE_NAMESPACES,
        lean=is_lean(func),
        copying=name in _COPYING,
        varying=bool(
            {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
            & set(tags)
        ),
    )


def kind_of(func: Any) -> Kind:
    """The kind of an operator overload.

    Args:
        func: An overload such as `torch.ops.aten.add_.Tensor`.

    Returns:
        Its kind; the same object at each call.

    Example:
        >>> kind_of(torch.ops.aten.add_.Tensor).writes
        (0,)
        >>> kind_of(torch.ops.aten.transpose.int).view
        True
    """
    kind = _table.get(func)
    if kind is None:
        kind = _table[func] = _read_schema(func)
    return kind

"""Traits of operators, read once from their schemas.

Schemas do not tell the whole truth. `native_batch_norm` overwrites its running
statistics without declaring it, so the exceptions stand in a table here. Operators
that only rewrite a tensor's size and strides (`transpose_`, `set_`) change no storage
and count as views, because the trace describes a tensor by its storage and geometry.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from retape._errors import UnsupportedError
from retape.engines.eager import _collectives as collectives
from retape.engines.eager.trace._backward_formulas import is_lean

__all__ = [
    "METADATA",
    "PARTLY_WRITTEN",
    "OperatorTraits",
    "nested_tensors",
    "traits_of",
    "written_tensors",
]

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
# It gives a tensor another storage, as `set_` does, without the tag that says so
# (PyTorch 2.14: what compiled code calls for `tensor.data = ...`).
_RETARGETERS = frozenset({"aten::shallow_copy_data_"})
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
# By operator, positions of results of which parts are never written. Of the attention
# of GPUs those are seeds where nothing is drawn, sums behind the last row, masks that
# nobody asked for: a run that drew something else has another first result.
_BESIDE_ATTENTION = frozenset(range(1, 9))
PARTLY_WRITTEN = {"aten::_ctc_loss": frozenset({1})} | dict.fromkeys(
    (
        "aten::_cudnn_attention_forward",
        "aten::_efficient_attention_forward",
        "aten::_flash_attention_forward",
        "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_efficient_attention",
        "aten::_scaled_dot_product_flash_attention",
        "aten::_scaled_dot_product_fused_attention_overrideable",
    ),
    _BESIDE_ATTENTION,
)
# They read no value, and may be asked of tensors that no operator could be run on.
METADATA = frozenset(
    getattr(packet, overload)
    for packet in (
        *(
            getattr(torch.ops.aten, name)
            for name in (
                "dim", "is_contiguous", "is_non_overlapping_and_dense",
                "is_strides_like_format", "numel", "size", "stride", "storage_offset",
                "sym_numel", "sym_size", "sym_storage_offset", "sym_stride",
            )
        ),
        torch.ops.prim.device,
        torch.ops.prim.layout,
    )
    for overload in packet.overloads()
)  # fmt: skip
# Their results include a workspace, parts of which nobody writes.
_SCRATCH = frozenset({"aten::mkldnn_rnn_layer", "aten::_cudnn_rnn", "aten::miopen_rnn"})


@dataclass(frozen=True, slots=True)
class OperatorTraits:
    """An operator's effect on the storages that it touches.

    Attributes:
        view: It makes no storage and writes none; there is nothing to replay.
        writes: Positions (or names, if keyword-only) of the arguments overwritten.
        random: It draws from a generator.
        chance: Position of a `dropout_p`: where it is zero, nothing is drawn.
        uninitialised: Its result holds whatever the memory held.
        resizes: It may give what it writes another size: `resize_`, or with `out=`.
        scratch: So do parts of one of its results.
        collective: Its result depends on other processes: it is never run again.
        lean: Its backward has no temporaries of the size of its result.
        copying: Its kernels work on copies of what it reads and makes.
        varying: The geometry of its result depends on values.
        aside: It makes and writes no value: it begins or ends a region of a profile, or
            gives its argument another geometry or memory.
        counted: What it writes may be counted as written before it is run.
    """

    view: bool
    writes: tuple[int | str, ...]
    random: bool
    chance: int | None
    uninitialised: bool
    resizes: bool
    scratch: bool
    collective: bool
    lean: bool
    copying: bool
    varying: bool
    aside: bool
    counted: bool

    @property
    def plain(self) -> bool:
        """Compiled code may record it: it makes or writes values, no more."""
        values = not (self.aside or self.collective or self.varying or self.scratch)
        by_place = all(isinstance(where, int) for where in self.writes)
        return values and by_place and not (self.resizes or self.counted)


_table: dict[Any, OperatorTraits] = {}


def _declared_writes(schema: Any) -> tuple[int | str, ...]:
    return tuple(
        argument.name if argument.kwarg_only else position
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )


def _hidden_writes(name: str) -> tuple[int | str, ...]:
    return _HIDDEN_WRITES.get(name) or collectives.WRITES.get(name, ())


def _dropout_position(schema: Any) -> int | None:
    names = [argument.name for argument in schema.arguments]
    return names.index("dropout_p") if "dropout_p" in names else None


def _read_schema(func: Any) -> OperatorTraits:
    schema, tags = func._schema, func.tags
    name: str = schema.name
    if func.namespace == "fsdp":
        raise UnsupportedError(
            f"`{name}` gathers sharded parameters (FSDP2) inside of a recomputation "
            "and outside of the forward of a module made by `fully_shard`, so its "
            "parameters may be gone when they are needed again. Call the module, and "
            "not one of its methods, or gather them with `module.unshard()` before "
            "the recomputation."
        )
    if func.namespace == "symm_mem":
        raise UnsupportedError(
            f"`{name}` writes into the memory of other processes (symmetric memory), "
            "which no record of this one shows. Call it outside of the recomputation, "
            "or use the collectives of `torch.distributed`."
        )
    reshapes = torch.Tag.inplace_view in tags and name not in _RESIZERS
    reshapes = reshapes or name in collectives.WITHOUT_RESULT | _RETARGETERS
    aside = reshapes or func.namespace == "profiler"
    writes = () if reshapes else _hidden_writes(name) or _declared_writes(schema)
    aliases = bool(schema.returns) and all(
        result.alias_info is not None for result in schema.returns
    )
    return OperatorTraits(
        # Without values, a program asks tensors for their device by an operator.
        view=(aliases and not writes and not aside) or name == "prim::device",
        writes=writes,
        random=torch.Tag.nondeterministic_seeded in tags,
        chance=_dropout_position(schema),
        uninitialised=name in _UNINITIALISED | _RESIZERS,
        resizes=name in _RESIZERS or any(isinstance(where, str) for where in writes),
        scratch=name in _SCRATCH,
        collective=func.namespace in collectives.NAMESPACES,
        lean=is_lean(func),
        copying=name in _COPYING,
        varying=bool(
            {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
            & set(tags)
        ),
        aside=aside,
        counted=bool(writes) and func.namespace != "aten",  # by `custom_op`
    )


def traits_of(func: Any) -> OperatorTraits:
    """The kind of an operator overload.

    Args:
        func: An overload such as `torch.ops.aten.add_.Tensor`.

    Returns:
        Its kind; the same object at each call.

    Examples:
        >>> traits_of(torch.ops.aten.add_.Tensor).writes
        (0,)
        >>> traits_of(torch.ops.aten.transpose.int).view
        True
    """
    kind = _table.get(func)
    if kind is None:
        kind = _table[func] = _read_schema(func)
    return kind


def written_tensors(
    kind: OperatorTraits, args: Sequence[Any], kwargs: dict[str, Any]
) -> Iterator[torch.Tensor]:
    """The tensors that an operator overwrites, in lists of any depth."""
    for where in kind.writes:
        if isinstance(where, str):
            yield from nested_tensors(kwargs.get(where))
        elif where < len(args):
            yield from nested_tensors(args[where])


def nested_tensors(value: Any) -> Iterator[torch.Tensor]:
    """The tensors in a value, in lists and tuples of any depth.

    Examples:
        >>> len(list(nested_tensors([[torch.ones(1)], (torch.ones(2), None)])))
        2
    """
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for each in value:
            yield from nested_tensors(each)

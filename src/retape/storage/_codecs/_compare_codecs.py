"""What a codec does to a gradient, measured."""

# Cotangents are of any type, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from retape._errors import StoreError
from retape.storage._base import SnapshotStore
from retape.storage._codecs._codec import Codec
from retape.storage._codecs._codec_store import CodecStore
from retape.storage._memory import MemoryStore
from retape.storage._trees._serialize import strip


@dataclass(frozen=True, slots=True)
class CodecTrial:
    """A run with a codec beside the same run without one.

    Attributes:
        codec: The codec.
        ratio: Bytes of all snapshots that were put, divided by those packed.
        snapshot_error: The largest error of a number of a snapshot, relative to the
            largest number of its array.
        gradient_error: The norm of the difference of the two gradients, divided by that
            of the gradient.
    """

    codec: str
    ratio: float
    snapshot_error: float
    gradient_error: float

    def __str__(self) -> str:
        return (
            f"{self.codec}: {self.ratio:.3g} times smaller, gradient off by "
            f"{self.gradient_error:.1e}"
        )


def compare_codecs(
    call: Callable[[SnapshotStore[Any]], Any],
    codecs: Sequence[str | Codec],
    *,
    store: Callable[[], SnapshotStore[Any]] = MemoryStore,
) -> list[CodecTrial]:
    """Run a program with each codec, and compare its gradients with the exact one.

    Try it on a short or a coarse run, with the plan of the long one: a gradient goes
    through as many restores as the plan has.

    Args:
        call: From a store to the gradient that a run with this store has: a tree.
        codecs: As for `CodecStore`.
        store: Makes the store inside, which for each run is a new one.

    Returns:
        What was measured, for each codec.

    Raises:
        StoreError: If a gradient has no numbers.

    Examples:
        >>> import numpy as np
        >>> import retape
        >>> from retape.storage import bounded, compare_codecs
        >>> def call(store):
        ...     return retape.adjoint(
        ...         retape.Program(
        ...             lambda x, k: x + 0.01 * np.sin(x),
        ...             lambda x, k, g: g + 0.01 * np.cos(x) * g,
        ...         ),
        ...         np.linspace(0, 1, 5000),
        ...         seed=lambda x: x,
        ...         steps=50,
        ...         store=store,
        ...         plan=retape.fixed_space(snapshots=3),
        ...     ).cotangent
        >>> exact, near = compare_codecs(call, ["lossless", bounded(relative=1e-3)])
        >>> exact.gradient_error, near.ratio > 10, near.gradient_error < 1e-3
        (0.0, True, True)
    """
    exact = _numbers(call(store()))
    found: list[CodecTrial] = []
    for codec in codecs:
        packed: Any = CodecStore(store(), codec)
        gradient = _numbers(call(packed))
        found.append(
            CodecTrial(
                str(packed.codec),
                packed.raw_bytes / max(1, packed.packed_bytes),
                packed.largest_error,
                _distance(gradient, exact),
            )
        )
    return found


def _distance(found: Any, exact: Any) -> float:
    import numpy as np

    size = float(np.linalg.norm(exact))
    away = float(np.linalg.norm(found - exact))
    return away / size if size else away


def _numbers(gradient: Any) -> Any:
    """The numbers of a gradient, as one vector."""
    import numpy as np

    is_number = isinstance(gradient, float | complex)
    leaves = [np.asarray(gradient)] if is_number else strip(gradient).leaves
    leaves = [np.ravel(leaf) for leaf in leaves if leaf.dtype.kind in "fc"]
    if not leaves:
        raise StoreError(
            f"a `{type(gradient).__name__}` is not a gradient: it has no arrays of "
            "numbers. Return the cotangent of the run."
        )
    return np.concatenate(leaves)

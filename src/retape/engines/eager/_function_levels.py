"""Recordings that begin inside of `torch.func.grad`, `vjp`, `jacrev` or `vmap`.

A transform wraps tensors, once for each level, and its autograd saves such wrappers. A
recording sees the operators below all of them, on plain tensors. So what is saved of a
wrapper is its plain tensor, as ever, and it is wrapped again when it is asked for: by
the level of the transform if that is still at work, which no wrapper outlives.

Saved tensors are seen by hooks, of which each thread has a stack. They are asked about,
taken off and refused here, too: transforms refuse them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor

from retape._errors import UnsupportedError
from retape._warn import warn


def key_set(*names: str) -> torch._C.DispatchKeySet:
    """The levels of PyTorch's dispatcher that have these names."""
    found: torch._C.DispatchKeySet | None = None
    for name in names:
        key = torch._C._parse_dispatch_key(name)
        assert key is not None, name
        each = torch._C.DispatchKeySet(key)
        found = each if found is None else found | each
    assert found is not None
    return found


TRANSFORMS = "FuncTorchDynamicLayerFrontMode", "FuncTorchDynamicLayerBackMode"
_BELOW_TRANSFORMS = key_set("AutocastCPU", *TRANSFORMS)
_KEPT = (
    "A recomputation inside of transforms of `torch.func`, one in the other or around "
    "parameters with a graph of their own: what is saved for the backward of the inner "
    "ones is a function of the outer ones, so it is kept and not recomputed. Results "
    "are the same, less memory is saved. Detach parameters that get no gradient."
)


# Made here, since up to 2.12 PyTorch ends in an assertion of its own where a tensor is
# made below its transforms.
_NO_VALUES = torch.empty(0)


def _functorch() -> Any:
    """PyTorch's transforms, which its stubs leave out."""
    return vars(torch._C)["_functorch"]


def inside_of_transform() -> bool:
    """Tell whether a transform of `torch.func` is at work in this thread."""
    return _functorch().peek_interpreter_stack() is not None


@contextmanager
def _below_transforms() -> Iterator[None]:
    with torch._C._ExcludeDispatchKeyGuard(_BELOW_TRANSFORMS):
        yield


class SavedLevel(NamedTuple):
    """Stands for a wrapper in the graph of a transform.

    Attributes:
        part: What stands for its plain tensor.
        layers: From the outermost: a level, with the place of a dimension of `vmap`.
        probe: A wrapper of the outermost level, if it is one of derivatives.
    """

    part: Any
    layers: tuple[tuple[int, int | None], ...]
    probe: Tensor | None


class Levels:
    """Saves tensors of a recording that began inside of a transform.

    Args:
        pack: Saves a plain tensor.
        unpack: Gives it back.
    """

    def __init__(
        self, pack: Callable[[Tensor], Any], unpack: Callable[[Any], Tensor]
    ) -> None:
        self._pack, self._unpack = pack, unpack
        self._probes: dict[int, Tensor] = {}
        self._warned = False

    def pack(self, tensor: Tensor) -> Any:
        """What stands for a tensor, wrapped or not."""
        tensor = _functorch().unwrap_if_dead(tensor)
        if _functorch().maybe_get_level(tensor) < 0:
            return self._pack(tensor)
        layers, plain = _layers(tensor)
        if plain is None:
            if not self._warned:
                self._warned = True
                warn(_KEPT)
            return tensor
        with _below_transforms():
            level, dim = layers[0]
            probe = self._probe(level) if dim is None else None
            return SavedLevel(self._pack(plain), tuple(layers), probe)

    def unpack(self, saved: Any) -> Tensor:
        """The tensor, in the wrappers that it was in."""
        if isinstance(saved, Tensor) and _functorch().maybe_get_level(saved) >= 0:
            return saved
        with _below_transforms():
            if not isinstance(saved, SavedLevel):
                return self._unpack(saved)
            tensor = self._unpack(saved.part)
        functions = _functorch()
        if saved.probe is not None and functions.maybe_get_level(saved.probe) < 0:
            if len(saved.layers) > 1:
                raise UnsupportedError(
                    "A recomputation is reversed by `vjp` or `jacrev` inside of "
                    "`vmap`, when the level that it was recorded in is over. Take "
                    "`vmap` inside of `jacrev`, or `vmap(grad)`, which are exact."
                )
            return tensor  # that level is over, where `vjp` is pulled back later
        for level, dim in reversed(saved.layers):
            if dim is None:
                tensor = functions._wrap_for_grad(tensor, level)
            else:
                tensor = functions._add_batch_dim(tensor, dim, level)
        return tensor

    def _probe(self, level: int) -> Tensor:
        found = self._probes.get(level)
        if found is None or _functorch().maybe_get_level(found) != level:
            found = _functorch()._wrap_for_grad(_NO_VALUES, level)
            self._probes[level] = found
        return found


def _layers(tensor: Tensor) -> tuple[list[tuple[int, int | None]], Tensor | None]:
    """The wrappers of a tensor, and the plain one, if that is all that is in them.

    What a wrapper inside of another one knows of derivatives is more than a value.
    """
    functions, found = _functorch(), list[tuple[int, int | None]]()
    while (level := functions.maybe_get_level(tensor)) >= 0:
        if functions.is_batchedtensor(tensor):
            found.append((level, functions.maybe_get_bdim(tensor)))
        elif functions.is_gradtrackingtensor(tensor) and not found:
            found.append((level, None))
        else:
            return found, None
        tensor = functions.get_unwrapped(tensor)
        if tensor.requires_grad:
            return found, None
    return found, tensor


def _autograd() -> Any:
    """PyTorch's own stack of hooks, which its stubs leave out."""
    return vars(torch._C)["_autograd"]


def hooks_are_on() -> bool:
    """Tell whether something is called for each tensor that this thread saves."""
    return _refused() is None and _top() is not None


def _top() -> Any:
    return _autograd()._top_saved_tensors_default_hooks(False)


def _refused() -> str | None:
    """Why nobody may put hooks on in this thread; `None` if everybody may."""
    return _autograd()._saved_tensors_hooks_get_disabled_error_message()


@contextmanager
def without_hooks() -> Iterator[None]:
    """Take this thread's hooks for saved tensors off, and put them back at the end."""
    hooks = _pop_all()
    try:
        yield
    finally:
        for pack, unpack in reversed(hooks):
            _autograd()._push_saved_tensors_default_hooks(pack, unpack)


@contextmanager
def hooks_are_allowed() -> Iterator[None]:
    """Let hooks be put on inside, also where a transform allows nobody to."""
    module, message = _autograd(), _refused()
    if message is None:
        yield
        return
    module._saved_tensors_hooks_enable()
    try:
        yield
    finally:
        module._saved_tensors_hooks_disable(message)


@contextmanager
def hooks_are_refused(why: str) -> Iterator[None]:
    """Let nobody put hooks on inside; PyTorch raises a `RuntimeError` of this text."""
    with without_hooks(), torch.autograd.graph.disable_saved_tensors_hooks(why):
        yield


def _pop_all() -> list[tuple[Any, Any]]:
    """Take all hooks off this thread's stack, the topmost first."""
    found: list[tuple[Any, Any]] = []
    while hooks_are_on():  # none are where a transform further out refuses them
        hooks = _top()
        _autograd()._pop_saved_tensors_default_hooks()
        found.append(hooks)
    return found

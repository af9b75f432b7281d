"""Cost model of an operator, from the shapes that it was recorded with.

No clock is looked at: the same program has the same costs on any day, and so the same
plan. The unit is the time in which a byte is read or written. Products of matrices,
convolutions and attention are counted by their operations, of which `_OPERATIONS` take
as long as a byte; all others by the bytes that they read and make, some several times.
Plans compare sums of costs, so only the proportions matter, and these only roughly:
they were read off one CPU core, and differ by a factor of two from machine to machine.
"""

from collections.abc import Callable, Mapping, Sequence
from math import prod

from retape.engines.eager.trace._step import Step, made_by
from retape.engines.eager.trace._trace import Trace

Shape = Sequence[int]

# A core does a hundred operations in the time in which ten bytes come and go.
_OPERATIONS = 8
# Calling an operator takes as long as so many bytes: about four microseconds.
_CALL = 50_000
# Draws make a number with dozens of operations, one core does 0.9 GB of them a second;
# masks broadcast a byte for each number; others call a function at each number.
_DRAWN = 16
_TIMES: Mapping[str, int] = {
    "aten::masked_fill": 8,
    **dict.fromkeys(
        (
            "aten::_log_softmax", "aten::_softmax", "aten::gelu", "aten::sigmoid",
            "aten::silu", "aten::tanh", "aten::native_layer_norm",
        ),
        2,
    ),
    "aten::native_batch_norm": 4,
}  # fmt: skip


def _product(shapes: Sequence[Shape], made: Shape) -> int:
    """Of the two matrices, or stacks of them, that are read last."""
    return 2 * prod(made) * shapes[-2][-1]


def _convolution(shapes: Sequence[Shape], made: Shape) -> int:
    """Each number made is a sum over the weight of one channel; transposed, read."""
    image, weight = shapes[0], shapes[1]
    outputs = made if len(made) > 1 and made[1] == weight[0] else image
    return 2 * prod(outputs) * prod(weight[1:])


def _attention(shapes: Sequence[Shape], made: Shape) -> int:
    """Of queries with keys, and of weights with values."""
    query, key = shapes[0], shapes[1]
    return 4 * prod(query) * key[-2]


def _recurrent_layer(shapes: Sequence[Shape], made: Shape) -> int:
    """Both weights are read after the input, and used at each step of each sequence."""
    return 2 * sum(map(prod, shapes[1:3])) * prod(shapes[0][:-1])


def _recurrent_layers(shapes: Sequence[Shape], made: Shape) -> int:
    """The input comes first; of what is read after it only weights are matrices."""
    weights = sum(prod(shape) for shape in shapes[1:] if len(shape) == 2)
    return 2 * weights * prod(shapes[0][:-1])


_FORMULAS: Mapping[str, Callable[[Sequence[Shape], Shape], int]] = {
    **dict.fromkeys(
        ("aten::mm", "aten::bmm", "aten::addmm", "aten::baddbmm", "aten::mv"), _product
    ),
    **dict.fromkeys(
        (
            "aten::convolution", "aten::_convolution", "aten::cudnn_convolution",
            "aten::mkldnn_convolution", "aten::convolution_overrideable",
        ),
        _convolution,
    ),
    **dict.fromkeys(
        (
            "aten::_scaled_dot_product_flash_attention",
            "aten::_scaled_dot_product_flash_attention_for_cpu",
            "aten::_scaled_dot_product_efficient_attention",
            "aten::_scaled_dot_product_cudnn_attention",
        ),
        _attention,
    ),
    "aten::mkldnn_rnn_layer": _recurrent_layer,
    **dict.fromkeys(("aten::_cudnn_rnn", "aten::miopen_rnn"), _recurrent_layers),
}  # fmt: skip


def step_costs(trace: Trace) -> list[int]:
    """The cost of each step of a trace."""
    return [step_cost(trace, step) for step in trace.steps]


def step_cost(trace: Trace, step: Step) -> int:
    """The cost of one step, in bytes."""
    signature = step.signature
    read = sum(prod(each.size) * each.dtype.itemsize for each in signature.geometries)
    made = made_by(step)
    touched = read + sum(trace.nbytes[slot] for slot in made)
    name = signature.func._schema.name
    shapes = [each.size for each in signature.geometries]
    if name in _FORMULAS and len(shapes) > 1 and made:
        return _CALL + call_cost(name, touched, shapes, trace.roots[made.start].size)
    if signature.kind.uninitialised:
        return _CALL
    if signature.kind.random:
        return _CALL + _DRAWN * touched
    return _CALL + call_cost(name, touched)


def call_cost(
    name: str, touched: int, shapes: Sequence[Shape] = (), made: Shape = ()
) -> int:
    """The cost of an operator beside its call.

    Args:
        name: Its name.
        touched: The bytes that it reads and makes.
        shapes: Of two tensors or more that it reads, to have its operations counted.
        made: The shape of its first result.
    """
    formula = _FORMULAS.get(name)
    if formula is not None and len(shapes) > 1:
        return touched + formula(shapes, made) // _OPERATIONS
    return _TIMES.get(name, 1) * touched

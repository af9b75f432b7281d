"""Traits of primitives: one table, one row for each primitive.

Every pass that treats primitives by name asks here. So a new primitive is one row, and,
if a kernel may hold it, one line in the tests' `kernel_operations`, which compiles all
of those. What stands in no row is dear, opaque to most analyses, and correct.

The columns:

again   from where on it is computed again rather than held (`Again`)
kernel  how a sweep that is one kernel may hold it (`Kernel`); its derivative must be
        in the table, too, or sweeps with it are silently not one kernel
flops   floating-point operations for each element, about
also    what else passes want to know (`Also`)
body    for a call that means no more than its body, the parameter that holds it
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, Flag, IntEnum, auto
from typing import Any

from jax.extend import core
from jax.interpreters import ad

from retape.engines.jaxpr.jaxprs._subprogram import closed


class Again(IntEnum):
    """How readily a value is computed again; each degree includes those before it."""

    NEVER = 0
    TWICE = 1
    """Dear work on each element alone: computed twice where holding it is worse, in
    the branches of `xla._sink_weight_gradients`."""
    FUSED = 2
    """Moving data, one flop an element, or no derivative: XLA fuses it into what reads
    it, so it is never taped (`codegen._min_cut`)."""
    LIGHT = 3
    """At most a flop, of few operands: each piece of a block that was cut makes its
    own (`codegen._split_blocks`)."""
    MADE_UP = 4
    """No work at all: every block that reads it makes its own (`ir._builder`)."""


class Kernel(Enum):
    """How a sweep that is one kernel may hold a primitive (`xla._single_kernel`)."""

    NEVER = auto()
    ELEMENT = auto()
    """Small arrays, element by element."""
    SHAPE = auto()
    """Small arrays, moved."""
    SUM = auto()
    """Small arrays, summed up."""
    ROW = auto()
    """One row of a small array."""
    PART = auto()
    """A small part of an array of any size."""
    BODY = auto()
    """It holds programs, which are looked at."""


class Also(Flag):
    """Further traits, for single passes."""

    NOTHING = 0
    JIT = auto()
    """A call by `jax.jit`."""
    INLINE = auto()
    """A call whose body may stand in its place."""
    LOOP = auto()
    """It runs what is inside as often as it says, or finds out."""
    REMAT = auto()
    """`jax.checkpoint`: it tapes what it is given."""
    OWN_SWEEP = auto()
    """Its body has a sweep of its own."""
    NO_DERIVATIVE = auto()
    """Differentiable types in, differentiable types out, and yet no derivative."""
    SAME_ELEMENTS = auto()
    """Each element of its result is one of its operand."""
    SAME_NUMBER = auto()
    """It hands on a number, perhaps in another type."""
    VIEW = auto()
    """Part of its operand, or all of it, in another shape."""
    PRODUCT_VIEW = auto()
    """May stand between a product and the cotangent that it is."""
    SLOW = auto()
    """On a single number worth a branch of its own (`xla._scalar_guards`)."""
    PRODUCT = auto()
    """A matrix product or a convolution: dear to compute, cheap to hold."""
    NOT_FUSED = auto()
    """XLA fuses it with nothing, so what it reads and makes takes memory."""


@dataclass(frozen=True, slots=True)
class Traits:
    """A row of the table."""

    again: Again = Again.NEVER
    kernel: Kernel = Kernel.NEVER
    flops: int = 1
    also: Also = Also.NOTHING
    body: str | None = None


_UNKNOWN = Traits()
_MOVED = Also.SAME_ELEMENTS | Also.SAME_NUMBER

TABLE: dict[str, Traits] = {
    # Calls
    "checkpoint": Traits(kernel=Kernel.BODY, also=Also.REMAT, body="jaxpr"),
    "closed_call": Traits(kernel=Kernel.BODY, also=Also.INLINE, body="call_jaxpr"),
    "core_call": Traits(kernel=Kernel.BODY, also=Also.INLINE, body="call_jaxpr"),
    "eval_jaxpr": Traits(kernel=Kernel.BODY, also=Also.INLINE, body="call_jaxpr"),
    "custom_jvp_call": Traits(kernel=Kernel.BODY, body="call_jaxpr"),
    "custom_vjp_call": Traits(kernel=Kernel.BODY),
    "custom_vjp_call_jaxpr": Traits(kernel=Kernel.BODY),
    "jit": Traits(kernel=Kernel.BODY, also=Also.JIT | Also.INLINE, body="jaxpr"),
    "pjit": Traits(kernel=Kernel.BODY, also=Also.JIT | Also.INLINE, body="jaxpr"),
    "remat2": Traits(kernel=Kernel.BODY, also=Also.REMAT, body="jaxpr"),
    "retape_call": Traits(kernel=Kernel.BODY, also=Also.OWN_SWEEP, body="jaxpr"),
    "retape_linear": Traits(kernel=Kernel.BODY, also=Also.OWN_SWEEP, body="jaxpr"),
    "shard_map": Traits(also=Also.OWN_SWEEP),
    # Loops and branches
    "cond": Traits(kernel=Kernel.BODY),
    "scan": Traits(kernel=Kernel.BODY, also=Also.LOOP | Also.NOT_FUSED),
    "while": Traits(kernel=Kernel.BODY, also=Also.LOOP | Also.NOT_FUSED),
    # Arithmetic on each element
    "abs": Traits(Again.FUSED, Kernel.ELEMENT),
    "acos": Traits(kernel=Kernel.ELEMENT, also=Also.SLOW),
    "acosh": Traits(kernel=Kernel.ELEMENT, also=Also.SLOW),
    "add": Traits(Again.LIGHT, Kernel.ELEMENT),
    "add_any": Traits(Again.FUSED, Kernel.ELEMENT),
    "and": Traits(Again.LIGHT, Kernel.ELEMENT),
    "asin": Traits(kernel=Kernel.ELEMENT, also=Also.SLOW),
    "asinh": Traits(kernel=Kernel.ELEMENT, also=Also.SLOW),
    "atan": Traits(kernel=Kernel.ELEMENT, also=Also.SLOW),
    "atan2": Traits(kernel=Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "atanh": Traits(kernel=Kernel.ELEMENT, also=Also.SLOW),
    "bitcast_convert_type": Traits(Again.FUSED, Kernel.ELEMENT),
    "cbrt": Traits(kernel=Kernel.ELEMENT, also=Also.SLOW),
    "ceil": Traits(Again.FUSED, Kernel.ELEMENT, also=Also.NO_DERIVATIVE),
    "clamp": Traits(Again.FUSED, Kernel.ELEMENT),
    "conj": Traits(Again.FUSED),
    "convert_element_type": Traits(
        Again.LIGHT, Kernel.ELEMENT, flops=0, also=Also.SAME_NUMBER | Also.PRODUCT_VIEW
    ),
    "copy": Traits(Again.LIGHT, Kernel.ELEMENT, flops=0, also=_MOVED),
    "cos": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "cosh": Traits(kernel=Kernel.ELEMENT, also=Also.SLOW),
    "digamma": Traits(flops=10, also=Also.SLOW),
    "div": Traits(Again.TWICE, Kernel.ELEMENT, also=Also.SLOW),
    "empty2": Traits(kernel=Kernel.ELEMENT),
    "eq": Traits(Again.LIGHT, Kernel.ELEMENT),
    "erf": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "erf_inv": Traits(flops=10, also=Also.SLOW),
    "erfc": Traits(also=Also.SLOW),
    "exp": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "exp2": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "expm1": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "floor": Traits(Again.FUSED, Kernel.ELEMENT, also=Also.NO_DERIVATIVE),
    "ge": Traits(Again.LIGHT, Kernel.ELEMENT),
    "gt": Traits(Again.LIGHT, Kernel.ELEMENT),
    "igamma": Traits(also=Also.SLOW),
    "imag": Traits(Again.FUSED),
    "integer_pow": Traits(Again.TWICE, Kernel.ELEMENT, also=Also.SLOW),
    "is_finite": Traits(Again.FUSED, Kernel.ELEMENT),
    "le": Traits(Again.LIGHT, Kernel.ELEMENT),
    "lgamma": Traits(flops=10, also=Also.SLOW),
    "log": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "log1p": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "logistic": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "lt": Traits(Again.LIGHT, Kernel.ELEMENT),
    "max": Traits(Again.LIGHT, Kernel.ELEMENT),
    "min": Traits(Again.LIGHT, Kernel.ELEMENT),
    "mul": Traits(Again.LIGHT, Kernel.ELEMENT),
    "ne": Traits(Again.LIGHT, Kernel.ELEMENT),
    "neg": Traits(Again.LIGHT, Kernel.ELEMENT),
    "nextafter": Traits(kernel=Kernel.ELEMENT),
    "not": Traits(Again.LIGHT, Kernel.ELEMENT),
    "or": Traits(Again.LIGHT, Kernel.ELEMENT),
    "pow": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "real": Traits(Again.FUSED),
    "rem": Traits(kernel=Kernel.ELEMENT, also=Also.SLOW),
    "round": Traits(Again.FUSED, Kernel.ELEMENT, also=Also.NO_DERIVATIVE),
    "rsqrt": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "select_n": Traits(Again.LIGHT, Kernel.ELEMENT),
    "shift_left": Traits(Again.FUSED, Kernel.ELEMENT),
    "shift_right_arithmetic": Traits(Again.FUSED, Kernel.ELEMENT),
    "shift_right_logical": Traits(Again.FUSED, Kernel.ELEMENT),
    "sign": Traits(Again.FUSED, Kernel.ELEMENT, also=Also.NO_DERIVATIVE),
    "sin": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "sinh": Traits(kernel=Kernel.ELEMENT, also=Also.SLOW),
    "sqrt": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "square": Traits(Again.FUSED, Kernel.ELEMENT),
    "stop_gradient": Traits(
        Again.LIGHT, Kernel.ELEMENT, flops=0, also=Also.NO_DERIVATIVE
    ),
    "sub": Traits(Again.LIGHT, Kernel.ELEMENT),
    "tan": Traits(kernel=Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "tanh": Traits(Again.TWICE, Kernel.ELEMENT, flops=10, also=Also.SLOW),
    "xor": Traits(Again.FUSED, Kernel.ELEMENT),
    # Moving data
    "broadcast_in_dim": Traits(
        Again.MADE_UP, Kernel.SHAPE, flops=0, also=_MOVED | Also.VIEW
    ),
    "concatenate": Traits(Again.FUSED, Kernel.SHAPE, flops=0),
    "dynamic_slice": Traits(Again.FUSED, Kernel.PART, flops=0),
    "dynamic_update_slice": Traits(kernel=Kernel.PART, flops=0),
    "gather": Traits(kernel=Kernel.SHAPE, flops=0, also=Also.NOT_FUSED),
    "iota": Traits(Again.MADE_UP, Kernel.SHAPE, flops=0),
    "name": Traits(flops=0),
    "optimization_barrier": Traits(kernel=Kernel.PART),
    "pad": Traits(Again.FUSED, Kernel.SHAPE, flops=0),
    "reshape": Traits(
        Again.MADE_UP,
        Kernel.SHAPE,
        flops=0,
        also=_MOVED | Also.VIEW | Also.PRODUCT_VIEW,
    ),
    "rev": Traits(Again.FUSED, Kernel.SHAPE, flops=0),
    "scatter": Traits(kernel=Kernel.ROW, flops=0, also=Also.NOT_FUSED),
    "scatter-add": Traits(kernel=Kernel.ROW),
    "scatter-mul": Traits(kernel=Kernel.ROW),
    "slice": Traits(Again.LIGHT, Kernel.SHAPE, flops=0, also=Also.VIEW),
    "split": Traits(Again.FUSED, Kernel.SHAPE),
    "squeeze": Traits(
        Again.MADE_UP,
        Kernel.SHAPE,
        flops=0,
        also=_MOVED | Also.VIEW | Also.PRODUCT_VIEW,
    ),
    "stack": Traits(Again.FUSED, Kernel.SHAPE),
    "transpose": Traits(
        Again.LIGHT, Kernel.SHAPE, flops=0, also=Also.VIEW | Also.PRODUCT_VIEW
    ),
    "unstack": Traits(Again.FUSED, Kernel.SHAPE),
    # Sums and the like
    "cumsum": Traits(kernel=Kernel.SUM),
    "reduce_and": Traits(kernel=Kernel.SUM),
    "reduce_max": Traits(kernel=Kernel.SUM),
    "reduce_min": Traits(kernel=Kernel.SUM),
    "reduce_or": Traits(kernel=Kernel.SUM),
    "reduce_prod": Traits(kernel=Kernel.SUM),
    "reduce_sum": Traits(kernel=Kernel.SUM),
    # Dear work, handed to a library or a loop of its own
    "conv_general_dilated": Traits(also=Also.PRODUCT | Also.NOT_FUSED),
    "dot_general": Traits(also=Also.PRODUCT | Also.NOT_FUSED),
    "fft": Traits(also=Also.NOT_FUSED),
    "sort": Traits(also=Also.NOT_FUSED),
    # Our own
    "retape_aux_output": Traits(also=Also.NO_DERIVATIVE),
    "retape_with_primal": Traits(kernel=Kernel.ELEMENT),
}


def traits(eqn: Any) -> Traits:
    """The row of an equation's primitive."""
    return TABLE.get(eqn.primitive.name, _UNKNOWN)


def is_a(eqn: Any, what: Also) -> bool:
    """Tell whether an equation's primitive has one of these traits."""
    return bool(traits(eqn).also & what)


_REFUSING = frozenset(("pure_callback", "io_callback"))
"""They have a rule, which raises."""


def has_no_rule(eqn: Any) -> bool:
    """Tell whether JAX refuses to differentiate an operation, whatever is inside."""
    return eqn.primitive not in ad.primitive_jvps or eqn.primitive.name in _REFUSING


def callee(eqn: Any) -> core.ClosedJaxpr | None:
    """The body of an equation that is a plain call, else `None`."""
    key = traits(eqn).body
    return None if key is None else closed(eqn.params[key])

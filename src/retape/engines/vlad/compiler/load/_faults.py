"""Messages of the runtime's faults: the same sentences as the interpreter's."""

from collections.abc import Sequence

from retape.engines.vlad.compiler.ir._ir import Site
from retape.engines.vlad.language._builtins import PYTHON_FAULTS
from retape.engines.vlad.values._externals import no_derivative
from retape.engines.vlad.values._primitives import too_large
from retape.engines.vlad.values._products import no_product, unlike
from retape.engines.vlad.values._values import (
    Value,
    describe_shape,
    kind_of,
    show_atom,
    show_pattern,
)
from retape.engines.vlad.values._vectors import bad_index, bad_length, no_vector

OVER_BUDGET, GAVE_UP_TYPED = 17, 18


def describe(
    fault: int,
    operator: str,
    sites: Sequence[Site],
    site: int,
    values: tuple[Value, Value],
) -> str:
    """The sentence of a fault, by its number in `enum Fault` of `runtime/state.h`."""
    value, other = values
    match fault:
        case 1:
            return f"`{operator}` takes reals, not `{show_atom(value)}`"
        case 2:
            return f"`{show_atom(value)}` is applied but is no function"
        case 3:
            return _no_match(sites[site], value if other is True else ((), ()))
        case 4:
            return "`read-real` is at the end of the input; give more reals"
        case 5:
            role = "tangent" if operator == "j*" else "cotangent"
            return wrong_shape(operator, role, value, other)
        case 6:
            return too_deep()
        case 7:
            return "the program needs more memory than there is; reduce its size"
        case 9:
            return no_vector(operator, value)
        case 10:
            return bad_index(operator, value, int(other))
        case 11:
            return bad_length(value)
        case 12:
            return no_derivative(operator, int(value))
        case 13:
            return PYTHON_FAULTS[int(value)]
        case 14:
            return too_large(value)
        case 15:
            return unlike(operator, int(value), int(other))
        case 16:
            return no_product(value, int(other[0]), int(other[1]))
    return "the runtime met a state that should not exist; please report this program"


def _no_match(site: Site, value: Value) -> str:
    assert site.pattern is not None
    call = f"in a call of `{site.name}`" if site.name else "in a call"
    return (
        f"{call}: the argument, {kind_of(value)}, does not match the parameter "
        f"`{show_pattern(site.pattern)}`"
    )


def wrong_shape(operator: str, role: str, value: Value, other: Value) -> str:
    """A (co)tangent whose shape is not that of its primal."""
    return (
        f"`{operator}`: the {role} does not have the shape of its primal: it has "
        f"{describe_shape(other)} where the primal has {describe_shape(value)}"
    )


def too_deep(limit: int = 100) -> str:
    """Derivatives nested without end."""
    return (
        f"derivatives are nested more than {limit} deep; does the program "
        "differentiate itself without end?"
    )

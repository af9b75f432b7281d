"""External functions on any real, for the interpreter and the hybrid."""

from collections.abc import Callable, Sequence
from typing import Any

from retape.engines.vlad.language._externals import PREFIX, NumberedExternal
from retape.engines.vlad.values._dual_and_taped import (
    Rule,
    UnaryRule,
    binary,
    strip,
    unary,
)
from retape.engines.vlad.values._values import Mismatch

HostOperator = Callable[..., Any]


def external_table(
    externals: Sequence[NumberedExternal],
) -> dict[str, HostOperator]:
    """The operator of each external function."""
    operators: list[HostOperator] = []
    for external in externals:
        lift = _unary if external.operands == 1 else _binary
        operators.append(lift(external, operators))
    return {f"{PREFIX}{number}": each for number, each in enumerate(operators)}


def _unary(external: NumberedExternal, operators: list[HostOperator]) -> HostOperator:
    def slope(a: Any, y: Any) -> Any:
        return _partial(external, 0, operators)(a)

    return _checked(external, unary(UnaryRule(external.name, _value(external), slope)))


def _binary(external: NumberedExternal, operators: list[HostOperator]) -> HostOperator:
    def slope(operand: int) -> HostOperator:
        return lambda a, b, y: _partial(external, operand, operators)(a, b)

    rule = Rule(external.name, _value(external), slope(0), slope(1))
    return _checked(external, binary(rule))


def _value(external: NumberedExternal) -> HostOperator:
    return lambda *operands: float(external.function(*operands))


def _checked(external: NumberedExternal, operator: HostOperator) -> HostOperator:
    """The operator, for reals only: the function must not be handed anything else."""

    def checked(*operands: Any) -> Any:
        for each in operands:
            strip(external.name, each)
        return operator(*operands)

    return checked


def _partial(
    external: NumberedExternal, operand: int, operators: list[HostOperator]
) -> HostOperator:
    number = external.partials[operand]
    if number < 0:
        raise Mismatch(no_derivative(external.name, operand))
    return operators[number]


def no_derivative(name: str, operand: int) -> str:
    """The message for an external function that is differentiated without a rule."""
    which = ("first", "second")[operand]
    return (
        f"`{name}` has no derivative with respect to its {which} operand; pass one in "
        "the `partials` of its `External`"
    )

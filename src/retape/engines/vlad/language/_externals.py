"""External functions: Python functions of reals that a program may call by name.

    {"cube": External(lambda x: x**3, [lambda x: 3 * x**2])}

A program's externals are numbered. A partial derivative is an external of its own, so
that it can have partial derivatives in turn, and derivatives nest as deep as those go.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from retape._errors import GradientTypeError
from retape.engines.vlad.language._builtins import BUILTIN_SOURCE, RESERVED
from retape.engines.vlad.language._core import Lambda, Pattern, PPair, Prim, PVar, Var
from retape.engines.vlad.language._diagnostics import Where

PREFIX = "external:"
"""Begins the operator of an external function; its number follows."""


@dataclass(frozen=True, slots=True)
class External:
    """A Python function of one or two reals, with its partial derivatives.

    Args:
        function: Takes and returns a float. It must do the same whenever it is called:
            a run that is divided calls it again.
        partials: One for each operand: a function of the same operands, an `External`
            if it is to be differentiated in turn, or `None` where there is none.

    Raises:
        GradientTypeError: If there is not one entry for each of one or two operands, or
            one of them cannot be called.

    Examples:
        >>> from retape import vlad
        >>> cube = vlad.External(lambda x: x**3, [lambda x: 3 * x**2])
        >>> vlad.run("(*j cube 2 1)", engine="hybrid", externals={"cube": cube}).output
        '(8 . 12)\\n'
    """

    function: Callable[..., float]
    partials: "Sequence[Callable[..., float] | External | None]"

    def __post_init__(self) -> None:
        if len(self.partials) not in (1, 2):
            raise GradientTypeError(
                f"an external function takes one or two reals, not "
                f"{len(self.partials)}; pass `partials` with an entry for each"
            )
        for each in (self.function, *self.partials):
            if each is not None and not callable(each) and type(each) is not External:
                raise GradientTypeError(
                    f"`{each!r}` is not a function; pass functions, an `External`, or "
                    "`None` where there is no partial derivative"
                )


@dataclass(frozen=True, slots=True)
class NumberedExternal:
    """An external function in a program's table.

    Attributes:
        name: The name that a program calls it by; of a partial, the function's.
        operands: One or two.
        partials: The numbers of its partial derivatives; -1 where there is none.
    """

    name: str
    function: Callable[..., float]
    operands: int
    partials: tuple[int, ...]


def number_externals(given: Mapping[str, External]) -> tuple[NumberedExternal, ...]:
    """The table of a program's external functions: the named ones come first."""
    pending = [(name, given[name]) for name in given]
    table: list[NumberedExternal] = []
    while len(table) < len(pending):
        name, external = pending[len(table)]
        numbers: list[int] = []
        for each in external.partials:
            if each is None:
                numbers.append(-1)
                continue
            none = (None,) * len(external.partials)
            partial = each if isinstance(each, External) else External(each, none)
            numbers.append(len(pending))
            pending.append((name, partial))
        operands = len(external.partials)
        table.append(
            NumberedExternal(name, external.function, operands, tuple(numbers))
        )
    return tuple(table)


def external_lambda(name: str, number: int, operands: int) -> Lambda:
    """The function of an external: it applies one operator, as those of builtins do."""
    if name in RESERVED:
        raise GradientTypeError(
            f"`{name}` is a reserved word of the language; give the function another "
            "name"
        )
    where = Where(BUILTIN_SOURCE, 0)
    names = [f"{letter}.{name}" for letter in "ab"[:operands]]
    param: Pattern = PVar(names[-1])
    if operands == 2:
        param = PPair(PVar(names[0]), param)
    args = tuple(Var(where, each) for each in names)
    return Lambda(where, name, param, Prim(where, f"{PREFIX}{number}", args), ())


def external_number(operator: str) -> int | None:
    """The number of an external's operator; `None` for another operator.

    Examples:
        >>> external_number("external:3"), external_number("sin")
        (3, None)
    """
    if not operator.startswith(PREFIX):
        return None
    return int(operator.removeprefix(PREFIX))

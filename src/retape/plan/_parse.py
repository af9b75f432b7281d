"""Plans as text: one grammar for every command.

    plan    = kind [ ":" option { "," option } ]
    option  = name "=" value | value
    value   = one that the option takes, or several joined by "+"

A tier of `tiers:levels=` is name/snapshots, or name/snapshots/write/read with what a
transfer costs. A value without a name is that of the only option that the kind needs,
so that `within:6 MB` is `within:budget=6 MB`.

A new kind of plan is a module with its class and its function, its place in `KINDS`,
its name in `retape/__init__.py`, a test and a section on the page. Its options are the
arguments of its function.
"""

import inspect
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType
from typing import Any, TypeAlias, get_args, get_origin

from retape._errors import PlanError
from retape.plan._base import Plan
from retape.plan._constructors import (
    fixed_space,
    fixed_time,
    logarithmic,
    segments,
    within,
)
from retape.plan._scheduled import chain
from retape.plan._tiers import tiers
from retape.schedule._tier import Tier

Reader: TypeAlias = Callable[[str, str], Any]
"""From the name of an option and its text to its value."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of plan.

    Attributes:
        make: The public function that makes such plans.
    """

    make: Callable[..., Plan]

    @property
    def name(self) -> str:
        """The kind in the grammar of `_parse`."""
        return self.make.__name__.replace("_", "-")

    @property
    def options(self) -> dict[str, inspect.Parameter]:
        """The options that its function takes, by name."""
        return dict(inspect.signature(self.make).parameters)

    @property
    def needed(self) -> list[str]:
        """The options without a default."""
        return [n for n, p in self.options.items() if p.default is p.empty]


_ALL = (fixed_space, fixed_time, logarithmic, segments, within, tiers, chain)

KINDS = {kind.name: kind for kind in map(Kind, _ALL)}
"""All kinds, in the order of the page."""


def parse_plan(text: str) -> Plan:
    """A plan from its text.

    Args:
        text: Such as `"fixed-space:snapshots=5,stage=1000"` or `"within:6 MB"`.

    Raises:
        PlanError: If there is no such plan, or it has no such option.

    Examples:
        >>> parse_plan("fixed-space:snapshots=5,stage=1000")
        retape.fixed_space(snapshots=5, stage=1000)
        >>> parse_plan("within:6 MB")
        retape.within(6000000)
        >>> parse_plan("tiers:memory=4,disk=50 MB,forward=3").costs.forward
        3.0
        >>> parse_plan("tiers:levels=device/3+host/20/1/1").levels[1]
        retape.Tier('host', 20, write=1.0, read=1.0)
    """
    return make_plan(*read_options(text))


def read_options(text: str) -> tuple[Kind, dict[str, str]]:
    """The kind of a plan and its options, as texts.

    Raises:
        PlanError: If there is no such kind, or an option is said twice.

    Examples:
        >>> read_options("fixed-time:sweeps=3,stage=1e3")[1]
        {'sweeps': '3', 'stage': '1e3'}
    """
    name, _, rest = text.partition(":")
    kind = kind_named(name)
    options: dict[str, str] = {}
    for part in filter(None, (each.strip() for each in rest.split(","))):
        option, equals, value = (each.strip() for each in part.partition("="))
        if not equals:
            option, value = _main_option(kind, part), part
        if option in options:
            raise PlanError(
                f"`{option}` is given twice in the plan `{text}`. Leave one out."
            )
        options[option] = value
    return kind, options


def kind_named(name: str) -> Kind:
    """A kind of plan by its name in the grammar.

    Raises:
        PlanError: If there is none; those that there are are listed.
    """
    kind = KINDS.get(name.strip().replace("_", "-"))
    if kind is None:
        raise PlanError(
            f"`{name}` is not a kind of plan. Write one of {', '.join(KINDS)}."
        )
    return kind


def make_plan(kind: Kind, options: Mapping[str, str]) -> Plan:
    """The plan of a kind with options that are texts.

    Raises:
        PlanError: If it has no such option, lacks one, or a value cannot be read.
    """
    readers = readers_of(kind)
    ready: dict[str, Any] = {}
    records: dict[str, dict[str, Any]] = {}
    for name, value in options.items():
        if name not in readers:
            raise _no_option(kind, f"{name}={value}")
        option, read = readers[name]
        if option == name:
            ready[name] = read(name, value)
        else:
            records.setdefault(option, {})[name] = read(name, value)
    for option, given in records.items():
        record = _without_none(kind.options[option].annotation)
        ready[option] = record(**given)
    lacking = [name for name in kind.needed if name not in ready]
    if lacking:
        asked = ",".join(f"{name}=..." for name in lacking)
        raise PlanError(
            f"the plan `{kind.name}` needs `{'` and `'.join(lacking)}`. Write "
            f"`{kind.name}:{asked}`."
        )
    return kind.make(**ready)


def readers_of(kind: Kind) -> dict[str, tuple[str, Reader]]:
    """The options of a kind in the grammar: whose part each is, and what reads it.

    How a value is written follows from the annotation of the option. A record such as
    `StepCosts` is not written as a whole: each of its parts is an option.

    Examples:
        >>> list(readers_of(kind_named("segments")))
        ['stage', 'offload']
    """
    readers: dict[str, tuple[str, Reader]] = {}
    for name, option in kind.options.items():
        wanted = _without_none(option.annotation)
        if is_dataclass(wanted):
            for part in fields(wanted):
                readers[part.name] = name, _reader(part.type)
        else:
            readers[name] = name, _reader(wanted)
    return readers


def _main_option(kind: Kind, part: str) -> str:
    if len(kind.needed) != 1:
        raise _no_option(kind, part)
    return kind.needed[0]


def _no_option(kind: Kind, part: str) -> PlanError:
    return PlanError(
        f"`{part}` is not an option of the plan `{kind.name}`. Write `name=value` "
        f"with one of {', '.join(readers_of(kind))}."
    )


def _whole(name: str, value: str) -> int:
    """A whole number; `1e6` and `1_000` are two.

    Examples:
        >>> _whole("stage", "1e6"), _whole("stage", "1_000")
        (1000000, 1000)
    """
    number = whole_number(value)
    if number is None:
        raise PlanError(
            f"`{name}={value}` is not a whole number. Write digits, or as in 1e6."
        )
    return number


def whole_number(text: str) -> int | None:
    """The whole number that a text means, exactly; `None` if it means none.

    Examples:
        >>> whole_number("1e6"), whole_number("12_000"), whole_number("1.5e3")
        (1000000, 12000, 1500)
        >>> whole_number("1e-3"), whole_number("many")
        (None, None)
    """
    mantissa, exponent, power = text.strip().lower().partition("e")
    digits, _, fraction = mantissa.partition(".")
    try:
        shift = int(power) if exponent else 0
        if abs(shift) > 99:
            return None
        number = int(digits + fraction) * 10 ** max(0, shift - len(fraction))
        rest = 10 ** max(0, len(fraction) - shift)
    except ValueError:
        return None
    return number // rest if number % rest == 0 else None


def _decimal(name: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise PlanError(f"`{name}={value}` is not a number. Write one.") from None


def _tier(name: str, value: str) -> Tier:
    """A tier: its name, how many snapshots or bytes it holds, its costs.

    Examples:
        >>> _tier("levels", "disk/50 GB/4/3")
        retape.Tier('disk', '50 GB', write=4.0, read=3.0)
    """
    called, *rest = (part.strip() for part in value.split("/"))
    if len(rest) not in (1, 3):
        raise PlanError(
            f"`{name}={value}` is not a tier. Write name/snapshots, as in device/3, or "
            "name/snapshots/write/read, as in disk/100/5/5, with '+' between tiers."
        )
    costs = [_decimal(name, cost) for cost in rest[1:]]
    return Tier(called, _amount(name, rest[0]), *costs)


def _word(_: str, value: str) -> str:
    return value


def _words(_: str, value: str) -> set[str]:
    return set(value.split("+"))


def _amount(_: str, value: str) -> int | str:
    """A number, of snapshots or bytes, or bytes as a text."""
    number = whole_number(value)
    return value if number is None else number


def _without_none(annotation: Any) -> Any:
    """The annotation of an option, if it may be left out: what it is otherwise."""
    kinds = [each for each in get_args(annotation) if each is not NoneType]
    optional = NoneType in get_args(annotation)
    return kinds[0] if optional and len(kinds) == 1 else annotation


def _reader(wanted: Any) -> Reader:
    """The parser of values of this annotation."""
    if wanted in (int, float):
        return _whole if wanted is int else _decimal
    if wanted is Tier:
        return _tier
    if get_origin(wanted) is Sequence:
        one = _reader(get_args(wanted)[0])
        return lambda name, value: [one(name, each) for each in value.split("+")]
    if get_origin(wanted) is Set:
        return _words
    return _amount if {int, float} & {*get_args(wanted)} else _word

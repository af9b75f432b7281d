"""Plans as text, for every command: the call that makes one, as Python writes it.

That is what `repr` of a plan is, so what one run reports another one can be given. Such
a text is read as calls with plain values in them, and nothing is evaluated.

A new kind of plan is a module with its class and its function, its place in `MAKERS`,
its name in `retape/__init__.py`, a test and a section on the page.
"""

import ast
from collections.abc import Callable
from typing import Any

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
from retape.schedule._tier import StepCosts, Tier

MAKERS: dict[str, Callable[..., Plan]] = {
    make.__name__: make
    for make in (fixed_space, fixed_time, logarithmic, segments, within, tiers, chain)
}
"""The functions that make plans, in the order of the page."""

_CALLS = {**MAKERS, "Tier": Tier, "StepCosts": StepCosts, "frozenset": frozenset}


def parse_plan(text: str) -> Plan:
    """A plan from its text.

    Args:
        text: A call such as `fixed_space(snapshots=5)` or `within("6 MB")`, with or
            without `retape.` before it.

    Raises:
        PlanError: If it is none, or the function does not take what it is given.

    Examples:
        >>> parse_plan("fixed_space(snapshots=5, stage=1000)")
        retape.fixed_space(snapshots=5, stage=1000)
        >>> parse_plan("tiers(levels=[Tier('device', 3), Tier('host', 20, 1, 1)])")
        retape.tiers(levels=(retape.Tier('device', 3), retape.Tier('host', 20,
        write=1.0, read=1.0)))
    """
    try:
        plan = _read(ast.parse(text.strip(), mode="eval").body)
    except PlanError:
        raise
    except (SyntaxError, ValueError, RecursionError):
        plan = None
    if not isinstance(plan, Plan):
        raise PlanError(
            f"`{text}` is not a plan. Write the call of one of {', '.join(MAKERS)}, "
            "such as `fixed_space(snapshots=20)` or `within('6 MB')`."
        )
    return plan


def _read(node: ast.expr) -> Any:
    """What an expression means: a call of `_CALLS`, or a plain value.

    Raises:
        PlanError: If a function does not take what it is given.
        ValueError: If it is something else.
    """
    match node:
        case ast.Call(func=ast.Name(name) | ast.Attribute(ast.Name("retape"), name)):
            options = {each.arg or "**": _read(each.value) for each in node.keywords}
            if name not in _CALLS or len(options) < len(node.keywords):
                raise ValueError  # Python lets nobody say an option twice, either.
            try:
                return _CALLS[name](*map(_read, node.args), **options)
            except TypeError as error:
                raise PlanError(f"`{ast.unparse(node)}`: {error}.") from None
        case ast.List(items) | ast.Tuple(items):
            return [_read(item) for item in items]
        case _:
            return ast.literal_eval(node)

"""What a `for` goes over: arrays, rows, `range`, `enumerate`, `zip` and `reversed`.

Each is its length and the item at a place, so they stand inside of one another; the
loop counts places.
"""

import ast
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from retape.engines.vlad.language._core import Const, Core, Prim, Var
from retape.engines.vlad.operators._table import (
    ADD,
    MAXIMUM,
    MINIMUM,
    SUBTRACT,
    VECTOR_REF,
)
from retape.engines.vlad.python.read._names import assigned
from retape.engines.vlad.python.read._types import (
    BOOL,
    INT,
    UNKNOWN,
    ArrayType,
    ListType,
    TupleType,
    holds_arrays,
)
from retape.engines.vlad.python.read._variables import Variables, share
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._core_builder import tuple_of

if TYPE_CHECKING:
    from retape.engines.vlad.python.statements._body import Body


@dataclass(frozen=True, slots=True)
class Bounds:
    """Those of a `range`.

    Attributes:
        least: An int that the start is known not to be below.
    """

    start: Core
    stop: Core
    step: Core
    least: int | None = 0


@dataclass(frozen=True, slots=True)
class Sequence:
    """What a loop goes over.

    Attributes:
        length: How many items there are; computed once, before the loop.
        item: The item at a place.
        held: What is computed before it, with its name.
        bounds: If it is a `range`, by which a loop counts without places.
    """

    length: Core
    item: Callable[[Core], Operand]
    held: tuple[tuple[str, Core], ...] = ()
    bounds: Bounds | None = None


def sequence(owner: "Body", loop: ast.For, node: ast.expr, env: Variables) -> Sequence:
    """What an expression in the head of a `for` is.

    Raises:
        CompileError: If a loop over it is not compiled.
    """
    called = owner.static_object(node.func, env) if isinstance(node, ast.Call) else None
    rule = _RULES.get(called) if isinstance(called, type) else None
    if rule is not None:
        assert isinstance(node, ast.Call)
        if node.keywords:
            owner.refuse(node, "keyword arguments are not compiled here")
        return rule(owner, loop, node, env)
    return _of_array(owner, loop, node, env)


def _of_array(owner: "Body", loop: ast.For, node: ast.expr, env: Variables) -> Sequence:
    where = owner.text.where(node)
    over = owner.expr(node, env)
    type_ = over.type
    if isinstance(node, ast.Name) and node.id in assigned(loop.body):
        owner.refuse(
            node,
            f"`{node.id}` is assigned in the loop over its items; loop over "
            f"`range(len({node.id}))`",
        )
    held: tuple[tuple[str, Core], ...] = ()
    if not isinstance(over.core, Var):
        held = ((owner.build.fresh("over"), over.core),)
        over = replace(over, core=Var(where, held[0][0]))
    if isinstance(type_, ListType):
        if holds_arrays(type_.item):
            share(node, env)  # an item is in the list, too
        length = owner.arrays.length(node, over).core

        def item_of_list(at: Core) -> Operand:
            return owner.lists.item(node, over, at, True, known=True)

        return Sequence(length, item_of_list, held)
    if not isinstance(type_, ArrayType):
        owner.refuse(
            node,
            "a loop goes over `range(...)`, over arrays and lists, and over "
            "`enumerate`, `zip` and `reversed` of those",
        )
    if type_.item is BOOL:
        owner.refuse(node, "a loop over an array of bools is not compiled; use `where`")
    if type_.rank > 1:
        share(node, env)  # a row is a view
    length = owner.arrays.length(node, over).core

    def item(at: Core) -> Operand:
        if type_.rank > 1:
            return owner.parts.first(node, over, Operand(at, INT))
        return Operand(Prim(where, VECTOR_REF, (over.core, at)), type_.item)

    return Sequence(length, item, held)


def _of_range(owner: "Body", loop: ast.For, node: ast.Call, env: Variables) -> Sequence:
    where = owner.text.where(node)
    parts = [owner.number(arg, env) for arg in node.args]
    for part, arg in zip(parts, node.args, strict=True):
        if part.type not in (INT, UNKNOWN):
            owner.refuse(arg, "`range` takes ints, and this is a float")
    zero, least = Const(where, 0.0), 0
    start: Core = zero
    step: Core = Const(where, 1.0)
    match [each.core for each in parts]:
        case [stop]:
            pass
        case [start, stop, *more] if len(more) < 2:
            step = more[0] if more else step
            least = owner.items.least(node.args[0], env)
        case _:
            owner.refuse(node, "`range` takes one to three ints")
    length = Prim(where, MAXIMUM, (Prim(where, SUBTRACT, (stop, start)), zero))

    def item(at: Core) -> Operand:
        return Operand(Prim(where, ADD, (start, at)), INT)

    return Sequence(length, item, bounds=Bounds(start, stop, step, least))


def _inside(owner: "Body", loop: ast.For, node: ast.expr, env: Variables) -> Sequence:
    """A sequence of whose items others are made, by their places."""
    found = sequence(owner, loop, node, env)
    if found.bounds is not None:
        if isinstance(node, ast.Call) and len(node.args) > 2:
            owner.refuse(node, "inside of others, `range` is compiled without a step")
        if not isinstance(found.bounds.start, Const | Var):
            owner.refuse(node, "the start of this `range` is a constant or a variable")
    return replace(found, bounds=None)


def _enumerated(
    owner: "Body", loop: ast.For, node: ast.Call, env: Variables
) -> Sequence:
    where = owner.text.where(node)
    if len(node.args) != 1:
        owner.refuse(node, "`enumerate` is compiled with one argument")
    inner = _inside(owner, loop, node.args[0], env)

    def item(at: Core) -> Operand:
        operand = inner.item(at)
        return Operand(
            tuple_of(where, [at, operand.core]), TupleType((INT, operand.type))
        )

    return Sequence(inner.length, item, inner.held)


def _zipped(owner: "Body", loop: ast.For, node: ast.Call, env: Variables) -> Sequence:
    where = owner.text.where(node)
    if not node.args:
        owner.refuse(node, "`zip` is compiled with one argument or more")
    each = [_inside(owner, loop, arg, env) for arg in node.args]
    length = each[0].length
    for other in each[1:]:
        length = Prim(where, MINIMUM, (length, other.length))

    def item(at: Core) -> Operand:
        found = [one.item(at) for one in each]
        types = TupleType(tuple(each.type for each in found))
        return Operand(tuple_of(where, [each.core for each in found]), types)

    held = tuple(one for each_one in each for one in each_one.held)
    return Sequence(length, item, held)


def _reversed(owner: "Body", loop: ast.For, node: ast.Call, env: Variables) -> Sequence:
    where = owner.text.where(node)
    if len(node.args) != 1:
        owner.refuse(node, "`reversed` is compiled with one argument")
    inner_node = node.args[0]
    is_array = not isinstance(inner_node, ast.Call)
    is_range = not is_array and owner.static_object(inner_node.func, env) is range
    if not is_array and not is_range:
        owner.refuse(node, "`reversed` is of an array or of a `range`, as in Python")
    inner = _inside(owner, loop, inner_node, env)
    last = Prim(where, SUBTRACT, (inner.length, Const(where, 1.0)))

    def item(at: Core) -> Operand:
        return inner.item(Prim(where, SUBTRACT, (last, at)))

    return Sequence(inner.length, item, inner.held)


_RULES: dict[type, Callable[..., Any]] = {
    range: _of_range,
    enumerate: _enumerated,
    zip: _zipped,
    reversed: _reversed,
}

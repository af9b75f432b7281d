"""What a caller sees beside the value: exceptions that are raised, and what is printed.

    raise ValueError("no")    a fault, of which the caller makes that exception
    print(x, f"{y:.2f}")      (write-real 7) (write-real x) (write-real y)

where 7 is the number of the texts around the numbers, from which the caller makes what
is printed. So a run that is divided prints once, as VLAD's own programs do.
"""

import ast
import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from retape.engines.vlad.language._core import Const, Core, Prim
from retape.engines.vlad.operators._table import WRITE_REAL
from retape.engines.vlad.python.expressions._unit import Printed, PrintedPart
from retape.engines.vlad.python.read._source import MISSING
from retape.engines.vlad.python.read._types import (
    BOOL,
    FLOAT,
    INT,
    UNKNOWN,
    kind_of_type,
)
from retape.engines.vlad.python.read._variables import Variables
from retape.engines.vlad.python.statements._joins import After, Emit
from retape.engines.vlad.python.terms._arithmetic import RAISED, Operand, fault

if TYPE_CHECKING:
    from retape.engines.vlad.python.statements._body import Body


def raise_(owner: "Body", node: ast.Raise, env: Variables) -> Emit:
    """`raise ValueError("why")`."""
    call, where = node.exc, owner.text.where(node)
    name = call.func if isinstance(call, ast.Call) else call
    found = MISSING if name is None else _exception_class(owner, name, env)
    if not isinstance(found, type) or not issubclass(found, BaseException):
        owner.refuse(node, "`raise` is compiled with the name of an exception's class")
    args: list[Any] = []
    for each in call.args if isinstance(call, ast.Call) else ():
        try:
            args.append(ast.literal_eval(each))
        except ValueError:
            owner.refuse(
                each,
                "the message of an exception is compiled if it is a constant; leave "
                "the numbers out of it, or print them before",
            )
    if node.cause is not None or (isinstance(call, ast.Call) and call.keywords):
        owner.refuse(node, "`from` and keyword arguments are not compiled here")
    owner.unit.raised[where] = found, tuple(args)
    return lambda: fault(where, RAISED)


def _exception_class(owner: "Body", node: ast.expr, env: Variables) -> Any:
    found = owner.static_object(node, env)
    if found is MISSING and isinstance(node, ast.Name) and node.id not in env:
        return getattr(builtins, node.id, MISSING)
    return found


def is_print(owner: "Body", node: ast.expr, env: Variables) -> bool:
    return isinstance(node, ast.Call) and owner.static_object(node.func, env) is print


def print_(owner: "Body", node: ast.Call, env: Variables, go: After) -> Emit:
    """`print(x, "and", f"{y:.3f}")`."""
    where = owner.text.where(node)
    options = {str(each.arg): _written_out(owner, each.value) for each in node.keywords}
    if not {*options} <= {"sep", "end"}:
        owner.refuse(node, "of the options of `print`, `sep` and `end` are compiled")
    parts: list[PrintedPart] = []
    numbers: list[Operand] = []
    for at, arg in enumerate(node.args):
        if at:
            parts.append(options.get("sep", " "))
        for each, shown in _texts_and_numbers(owner, arg):
            if each is None:
                parts.append(shown)
                continue
            given = owner.expr(each, env)
            if given.type not in (INT, FLOAT, BOOL, UNKNOWN):
                kind = kind_of_type(given.type)
                owner.refuse(
                    each,
                    f"{kind} is not printed here; print numbers, bools and texts that "
                    "are written out",
                )
            parts.append((given.type, shown))
            numbers.append(owner.as_number(each, given))
    number = owner.unit.printed(Printed(tuple(parts), options.get("end", "\n")))
    inner = go(env)

    def emit() -> Core:
        return owner.arithmetic.named(
            where, tuple(each.core for each in numbers), written
        )

    def written(*cores: Core) -> Core:
        result = inner()
        for core in reversed((Const(where, float(number)), *cores)):
            done = Prim(where, WRITE_REAL, (core,))
            name = owner.build.fresh("written")
            result = owner.build.let_var(where, name, done, result)
        return result

    return emit


def _written_out(owner: "Body", node: ast.expr) -> str:
    value = node.value if isinstance(node, ast.Constant) else None
    if not isinstance(value, str):
        owner.refuse(node, "a text that is written out is needed here")
    return value


def _texts_and_numbers(
    owner: "Body", node: ast.expr
) -> Iterator[tuple[ast.expr | None, str]]:
    """The texts of what is printed, and the numbers with their formats."""
    match node:
        case ast.Constant(value=str(value)):
            yield None, value
        case ast.JoinedStr(values=values):
            for each in values:
                yield from _texts_and_numbers(owner, each)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=spec):
            texts = [] if spec is None else getattr(spec, "values", [])
            yield value, "".join(_written_out(owner, each) for each in texts)
        case ast.FormattedValue():
            owner.refuse(node, "`!r` and its like are not compiled; leave them out")
        case _:
            yield node, ""

"""One instance of a function, for arguments of known types, as a definition."""

import ast

from retape.engines.vlad.language._core import (
    Const,
    Core,
    Lambda,
    Pattern,
    PConst,
    PVar,
    Var,
)
from retape.engines.vlad.python.expressions._unit import Instance, Nested, Unit, Written
from retape.engines.vlad.python.library._table import WRITES
from retape.engines.vlad.python.read._names import captured, changes, parameters
from retape.engines.vlad.python.read._source import Parsed
from retape.engines.vlad.python.read._types import NONE, FunctionType, Type
from retape.engines.vlad.python.read._variables import Variable, Variables
from retape.engines.vlad.python.statements._body import Body
from retape.engines.vlad.python.terms._arithmetic import Operand
from retape.engines.vlad.python.terms._core_builder import nested_pattern, tuple_of


def translate(
    unit: Unit,
    parsed: Parsed,
    function: FunctionType,
    args: tuple[Type, ...],
    instance: Instance,
) -> Lambda:
    """One instance of a function as a definition of the core language."""
    body = Body(unit, parsed, instance)
    where = parsed.text.where(parsed.node)
    _check_captures(parsed)
    env: Variables = {}
    patterns: list[Pattern] = []
    taken = [unit.build.fresh(name) for name, _ in function.captured]
    if function.captured:
        patterns.append(nested_pattern([PVar(name) for name in taken]))
    for unique, (name, type_) in zip(taken, function.captured, strict=True):
        if name.isidentifier():
            env[name] = Variable(unique, type_)
    itself = unit.build.fresh(parsed.name)
    group = function.key.group if isinstance(function.key, Nested) else ()
    for each in group:
        if isinstance(each.parsed.node, ast.FunctionDef):
            type_ = FunctionType(each, function.captured)
            env[each.parsed.name] = Variable(itself, type_)
    given = isinstance(function.key, Written) and parsed.name in WRITES
    for name, type_ in zip(parameters(parsed.node), args, strict=True):
        unique = unit.build.fresh(name)
        patterns.append(PVar(unique))
        env[name] = Variable(unique, type_, owned=given)
        given = False
    core = _translated(body, parsed, env)
    if itself in unit.build.free(core):
        captures = tuple_of(where, [Var(where, name) for name in taken])
        core = unit.build.let_var(where, itself, captures, core)
    pattern = nested_pattern(patterns) if patterns else PConst(())
    return Lambda(where, parsed.name, pattern, core, ())


def _translated(body: Body, parsed: Parsed, env: Variables) -> Core:
    """The whole body of a function."""
    node, where = parsed.node, parsed.text.where(parsed.node)
    if isinstance(node, ast.Lambda):
        value = ast.copy_location(ast.Return(node.body), node.body)
        return body.return_(value, env)()
    nothing = Operand(Const(where, ()), NONE)
    return body.block(
        node.body, env, lambda _: body.finish(node, nothing, True), None
    )()


def _check_captures(parsed: Parsed) -> None:
    """Refuse closures over variables that change: they would see the later value."""
    counts = changes(parsed.node)
    for name, inner in captured(parsed.node).items():
        if counts.get(name, 0) > 1:
            parsed.text.refuse(
                inner,
                f"`{name}` is assigned more than once, and this function would see its "
                f"latest value; take it as it is now by a default: `{name}={name}`",
            )

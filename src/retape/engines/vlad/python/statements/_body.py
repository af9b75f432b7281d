"""Python's statements in the core language: control flow as functions.

    x = a; rest             (let ((x' a)) rest)                          `_assignments`
    if t: A else: B; rest   (letrec ((join (x ...) rest)) (if t A B))    `_joins`
    while t: body; rest     (letrec ((loop (x ...) (if t body rest)))
                              (loop x ...))                              `_loops`
    break, continue         calls of what follows the loop, and of the loop
    return e                e, since everything stands at an end

Types are found in a first pass over each piece; a term is made afterwards, by an
`Emit`, when the types where branches join are known.
"""

import ast
from collections.abc import Sequence

from retape.engines.vlad.language._builtins import PYTHON_FAULTS
from retape.engines.vlad.language._core import Const, Core, If, Prim
from retape.engines.vlad.operators._table import CONS
from retape.engines.vlad.python.expressions._conditions import decided
from retape.engines.vlad.python.expressions._expressions import Expressions
from retape.engines.vlad.python.expressions._unit import Instance, Unit
from retape.engines.vlad.python.read._names import groups, variables_of
from retape.engines.vlad.python.read._source import Parsed
from retape.engines.vlad.python.read._types import (
    NONE,
    UNKNOWN,
    NoCommonType,
    OneOf,
    Type,
    has_arrays_within,
    holds_arrays,
    join,
)
from retape.engines.vlad.python.read._variables import Variable, Variables, parting
from retape.engines.vlad.python.statements._assignments import (
    Assignments,
    are_fresh,
    is_list_call,
)
from retape.engines.vlad.python.statements._effects import is_print, print_, raise_
from retape.engines.vlad.python.statements._for_loops import for_loop
from retape.engines.vlad.python.statements._joins import After, Emit, JoinPoint
from retape.engines.vlad.python.statements._loops import Exits, Loops
from retape.engines.vlad.python.terms._arithmetic import Operand, fault


class Body(Expressions):
    """The statements of one instance of a function."""

    def __init__(self, unit: Unit, parsed: Parsed, instance: Instance) -> None:
        super().__init__(unit, parsed)
        self.instance = instance
        self.assignments = Assignments(self)
        self.loops = Loops(self)
        self.locals |= variables_of(parsed.node)

    def block(
        self,
        nodes: Sequence[ast.stmt],
        env: Variables,
        after: After,
        exits: Exits | None,
    ) -> Emit:
        """Statements, and what follows them."""
        if not nodes:
            return after(env)
        node, rest = nodes[0], nodes[1:]
        env = dict(env)

        def go(inner: Variables) -> Emit:
            return self.block(rest, inner, after, exits)

        match node:
            case ast.Assign():
                return self.assignments.assign(node, env, go)
            case ast.AnnAssign(value=value) if value is not None:
                copy = ast.copy_location(ast.Assign([node.target], value), node)
                return self.assignments.assign(copy, env, go)
            case ast.AugAssign():
                return self.assignments.augmented(node, env, go)
            case ast.If():
                return self._if(node, env, go, exits)
            case ast.While():
                return self.loops.while_(node, env, go, exits)
            case ast.For():
                return for_loop(self, node, env, go, exits)
            case ast.Return():
                return self.return_(node, env)
            case ast.Break() | ast.Continue():
                assert exits is not None
                return (exits.out if isinstance(node, ast.Break) else exits.again)(env)
            case ast.FunctionDef():
                together = _definitions_in(nodes)
                rest = nodes[len(together) :]
                return self._definitions(groups(together), env, go)
            case ast.Assert():
                return self._assert(node, env, go)
            case ast.Raise():
                return raise_(self, node, env)
            case ast.Expr(value=ast.Call() as call) if is_print(self, call, env):
                return print_(self, call, env, go)
            case ast.Expr(value=ast.Call() as call) if is_list_call(call, env):
                return self.assignments.of_list(node, call, [], env, go)
            case ast.Pass() | ast.Expr(value=ast.Constant()) | ast.AnnAssign():
                return go(env)
            case ast.Expr(value=ast.Call(func=ast.Attribute()) as call):
                self.calls.call(call, env)  # which says what methods there are
        return self.refuse(node, _instead_of_statement(node))

    def finish(
        self,
        node: ast.AST,
        operand: Operand,
        fresh: bool,
        ways: tuple[Type, ...] = (),
    ) -> Emit:
        """A return from the function, on `ways` of a function that it calls last."""
        instance, core, type_ = self.instance, operand.core, operand.type
        if isinstance(type_, OneOf):
            ways = type_.items
        ways = ways or (type_,)
        try:
            for each in ways:
                instance.returns = join(instance.returns, each)
        except NoCommonType as error:
            self.refuse(node, f"the function returns {error}; make them alike")
        known = (each for each in ways if each is not UNKNOWN)
        instance.ways = (*dict.fromkeys((*instance.ways, *known)),)
        if holds_arrays(type_) and not fresh:
            instance.fresh = False
        if not instance.tells or isinstance(type_, OneOf):
            return lambda: core
        where = self.text.where(node)
        number = Const(where, self.unit.number_of(type_))
        return lambda: Prim(where, CONS, (number, core))

    def _if(self, node: ast.If, env: Variables, go: After, exits: Exits | None) -> Emit:
        where = self.text.where(node)
        test = self.conditions.condition(node.test, env)
        if (is_true := decided(test)) is not None:
            return self.block(node.body if is_true else node.orelse, env, go, exits)
        point = JoinPoint(self.build.fresh("join"))

        def arrive(inner: Variables) -> Emit:
            return point.arrive(self, inner, where)

        then = self.block(node.body, env, arrive, exits)
        other = self.block(node.orelse, env, arrive, exits)
        point.follow(self, node, env, go)

        def branches() -> Core:
            return If(where, test, then(), other())

        return lambda: point.around(self, where, branches)

    def return_(self, node: ast.Return, env: Variables) -> Emit:
        value = node.value
        if value is None:
            return self.finish(
                node, Operand(Const(self.text.where(node), ()), NONE), True
            )
        if isinstance(value, ast.IfExp):
            return self._if(_as_statement(value), env, _nothing_follows, None)
        leaving = parting(value, env, env)
        if isinstance(value, ast.Call):
            operand = self.calls.call(value, env, tells=self.instance.tells)
        else:
            operand = self.expr(value, env)
        name = value.id if isinstance(value, ast.Name) else ""
        owned = name in env and env[name].owned
        if has_arrays_within(operand.type):  # whose items may have other names
            operand, owned = (
                Operand(operand.core, operand.type, ways=operand.ways),
                False,
            )
        fresh = all(are_fresh(operand, value, leaving))
        ways = operand.ways if isinstance(value, ast.Call) else ()
        return self.finish(node, operand, fresh or owned, ways)

    def _definitions(
        self, found: list[list[ast.FunctionDef]], env: Variables, go: After
    ) -> Emit:
        """Definitions that stand together, in groups that call one another."""
        if not found:
            return go(env)
        group, *rest = found
        for each in group:
            if each.decorator_list:
                self.refuse(
                    each, "a decorator inside a compiled function is not compiled"
                )
        where = self.text.where(group[0])
        value, types = self.nested({each.name: each for each in group}, env)
        name = self.build.fresh(group[0].name)
        made = {
            each.name: Variable(name, type_)
            for each, type_ in zip(group, types, strict=True)
        }
        inner = self._definitions(rest, {**env, **made}, go)
        return lambda: self.build.let_var(where, name, value, inner())

    def _assert(self, node: ast.Assert, env: Variables, go: After) -> Emit:
        where = self.text.where(node)
        test, inner = self.conditions.condition(node.test, env), go(env)
        wrong = fault(where, _told(node.msg))
        return lambda: If(where, test, inner(), wrong)


def _told(message: ast.expr | None) -> str:
    """The fault of an assertion: our own functions say which it is."""
    text = message.value if isinstance(message, ast.Constant) else None
    return text if text in PYTHON_FAULTS else "assertion failed"


def _as_statement(node: ast.IfExp) -> ast.If:
    """A choice that is returned, as two returns."""
    returns: list[ast.stmt] = [
        ast.copy_location(ast.Return(each), each) for each in (node.body, node.orelse)
    ]
    return ast.copy_location(ast.If(node.test, returns[:1], returns[1:]), node)


def _nothing_follows(env: Variables) -> Emit:
    raise AssertionError("what stands after two returns is not reached")


def _definitions_in(nodes: Sequence[ast.stmt]) -> list[ast.FunctionDef]:
    """The definitions with which some statements begin."""
    found: list[ast.FunctionDef] = []
    for node in nodes:
        if not isinstance(node, ast.FunctionDef):
            break
        found.append(node)
    return found


def _instead_of_statement(node: ast.stmt) -> str:
    match node:
        case ast.Try():
            return "`try` is not compiled; return a flag, or catch it in the caller"
        case ast.With():
            return "`with` is not compiled; do this outside of the compiled function"
        case ast.Expr():
            return (
                "an expression whose value is not used does nothing here; assign it, "
                "or remove it"
            )
        case ast.Global() | ast.Nonlocal():
            return "variables of other functions are not changed; return their values"
        case ast.Import() | ast.ImportFrom():
            return "imports stand at the top of the file"
        case ast.ClassDef():
            return "classes are not compiled; use tuples"
        case ast.Delete():
            return "`del` is not compiled; leave it out"
        case ast.Match():
            return "`match` is not compiled; use `if` and `elif`"
        case _:
            return f"`{type(node).__name__}` is not compiled; see the subset's page"

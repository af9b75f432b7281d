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

from retape.engines.vlad.language._core import Const, Core, If
from retape.engines.vlad.python.expressions._expressions import Expressions
from retape.engines.vlad.python.expressions._unit import Instance, Unit
from retape.engines.vlad.python.expressions._variables import (
    Variable,
    Variables,
    parting,
)
from retape.engines.vlad.python.read._names import assigned, body_of, parameters
from retape.engines.vlad.python.read._source import Parsed
from retape.engines.vlad.python.read._types import (
    NONE,
    NoCommonType,
    Type,
    holds_arrays,
    join,
)
from retape.engines.vlad.python.statements._assignments import Assignments
from retape.engines.vlad.python.statements._for_loops import for_loop
from retape.engines.vlad.python.statements._joins import After, Emit, JoinPoint
from retape.engines.vlad.python.statements._loops import Exits, Loops
from retape.engines.vlad.python.statements._refusals import instead_of_statement
from retape.engines.vlad.python.terms._arithmetic import fault


class Body(Expressions):
    """The statements of one instance of a function."""

    def __init__(self, unit: Unit, parsed: Parsed, instance: Instance) -> None:
        super().__init__(unit, parsed)
        self.instance = instance
        self.assignments = Assignments(self)
        self.loops = Loops(self)
        self.locals |= {*parameters(parsed.node), *assigned(body_of(parsed.node))}

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
                return self.loops.while_(node, env, go)
            case ast.For():
                return for_loop(self, node, env, go)
            case ast.Return():
                return self._return(node, env)
            case ast.Break() | ast.Continue():
                assert exits is not None
                return (exits.out if isinstance(node, ast.Break) else exits.again)(env)
            case ast.FunctionDef():
                return self._definition(node, env, go)
            case ast.Assert():
                return self._assert(node, env, go)
            case ast.Pass() | ast.Expr(value=ast.Constant()) | ast.AnnAssign():
                return go(env)
        return self.refuse(node, instead_of_statement(node))

    def finish(self, node: ast.AST, operand: tuple[Core, Type], fresh: bool) -> Emit:
        """A return from the function."""
        core, type_ = operand
        try:
            self.instance.returns = join(self.instance.returns, type_)
        except NoCommonType as error:
            self.refuse(node, f"the function returns {error}; make them alike")
        if holds_arrays(type_) and not fresh:
            self.instance.fresh = False
        return lambda: core

    def _if(self, node: ast.If, env: Variables, go: After, exits: Exits | None) -> Emit:
        where = self.text.where(node)
        test = self.conditions.condition(node.test, env)
        point = JoinPoint(self.build.fresh("join"))

        def arrive(inner: Variables) -> Emit:
            return point.arrive(self, inner, where)

        then = self.block(node.body, env, arrive, exits)
        other = self.block(node.orelse, env, arrive, exits)
        point.follow(self, node, env, go)

        def branches() -> Core:
            return If(where, test, then(), other())

        return lambda: point.around(self, where, branches)

    def _return(self, node: ast.Return, env: Variables) -> Emit:
        if node.value is None:
            return self.finish(node, (Const(self.text.where(node), ()), NONE), True)
        leaving = parting(node.value, env, env)
        operand = self.expr(node.value, env)
        name = node.value.id if isinstance(node.value, ast.Name) else ""
        owned = name in env and env[name].owned
        fresh = all(self.are_fresh(node.value, leaving))
        return self.finish(node, operand, fresh or owned)

    def _definition(self, node: ast.FunctionDef, env: Variables, go: After) -> Emit:
        if node.decorator_list:
            self.refuse(node, "a decorator inside a compiled function is not compiled")
        where = self.text.where(node)
        value, type_ = self.nested(node, node.name, env)
        name = self.build.fresh(node.name)
        inner = go({**env, node.name: Variable(name, type_)})
        return lambda: self.build.let_var(where, name, value, inner())

    def _assert(self, node: ast.Assert, env: Variables, go: After) -> Emit:
        where = self.text.where(node)
        test, inner = self.conditions.condition(node.test, env), go(env)
        wrong = fault(where, "assertion failed")
        return lambda: If(where, test, inner(), wrong)

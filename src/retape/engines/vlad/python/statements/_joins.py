"""Places where control flow joins: what follows, as a function of what differs.

    if t: x = 1             (letrec ((join (x) ...rest))
    else: x = 2      ->       (if t (join 1) (join 2)))
    rest

A join of one branch needs no function. These are the phi functions of static single
assignment, written as parameters (Appel 1998, "SSA is functional programming").
"""

import ast
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from retape.engines.vlad.language._core import Core, Var
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.python.read._types import NoCommonType, join
from retape.engines.vlad.python.read._variables import Variable, Variables

if TYPE_CHECKING:
    from retape.engines.vlad.python.statements._body import Body

Emit = Callable[[], Core]
"""Makes a term, once all types are known."""

After = Callable[[Variables], Emit]
"""What follows a statement, given the variables there."""


@dataclass(slots=True)
class JoinPoint:
    """A place where branches join: the variables of each branch.

    Attributes:
        name: That of the function of what follows.
        envs: The variables of each branch that comes here.
        variables: Those that differ between the branches: the function's parameters.
        inline: What follows, if only one branch comes here: it needs no function.
        rest: Else the function's parameters and body.
    """

    name: str
    envs: list[Variables] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    inline: Emit | None = None
    rest: tuple[list[str], Emit] | None = None

    def arrive(self, body: "Body", env: Variables, where: Where) -> Emit:
        """A branch that ends here: a call with the variables' values."""
        self.envs.append(env)

        def emit() -> Core:
            if self.inline is not None:
                return self.inline()
            values = [Var(where, env[each].name) for each in self.variables]
            return body.build.call(where, Var(where, self.name), values)

        return emit

    def follow(self, body: "Body", node: ast.AST, before: Variables, go: After) -> None:
        """Translate what follows, once all branches have arrived."""
        if len(self.envs) == 1:
            self.inline = go(self.envs[0])
        elif self.envs:
            env, self.variables = merged(body, self.envs, before, node)
            names = [body.build.fresh(each) for each in self.variables]
            for each, name in zip(self.variables, names, strict=True):
                env[each] = replace(env[each], name=name)
            self.rest = names, go(env)

    def around(self, body: "Body", where: Where, branches: Emit) -> Core:
        """The branches, inside of the function of what follows."""
        if self.rest is None:
            return branches()
        names, emit = self.rest
        return body.build.letrec(where, self.name, names, emit(), branches())


def merged(
    body: "Body", envs: list[Variables], before: Variables, node: ast.AST
) -> tuple[Variables, list[str]]:
    """The variables that all branches have, and those that are new on one of them."""
    found: Variables = {}
    changed: list[str] = []
    for each in envs[0]:
        variables = [env[each] for env in envs if each in env]
        if len(variables) < len(envs):
            continue
        variable = variables[0]
        for other in variables[1:]:
            variable = common(body, each, variable, other, node)
        known = before[each].name if each in before else None
        if any(other.name != known for other in variables):
            changed.append(each)
        found[each] = variable
    return found, changed


def common(
    body: "Body", name: str, a: Variable, b: Variable, node: ast.AST
) -> Variable:
    """The facts that hold for a variable on both branches."""
    try:
        type_ = join(a.type, b.type)
    except NoCommonType as error:
        return body.refuse(
            node, f"`{name}` is {error}; give it another name on one of them"
        )
    least = a.least if a.name == b.name and a.least == b.least else None
    return Variable(a.name, type_, a.owned and b.owned, least)


def only(env: Variables, names: Collection[str] | None) -> Variables:
    """The variables of these names; all for `None`."""
    return {n: known for n, known in env.items() if names is None or n in names}

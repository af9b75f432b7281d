"""Pass: which functions are only ever called, so that they need no closure.

    (let loop ((i 0)) ... (loop (+ i 1)))   loop is called: no closure
    (map (lambda (x) (* a x)) xs)           the lambda is a value: it escapes

A lambda escapes unless it is applied on the spot, or bound by `let` or `letrec` to a
variable that is only called. What an escaping lambda takes from outside escapes too:
its closure holds it. The other functions are known wherever they are called, and get
their free variables in registers (Steele 1978; Appel 1992).
"""

from retape.engines.vlad.language._core import (
    App,
    Core,
    Lambda,
    Letrec,
    Pattern,
    PPair,
    Prim,
    PVar,
    Var,
    children,
)
from retape.engines.vlad.operators._table import CONS

Group = Lambda | Letrec


class Escapes:
    """The escaping lambdas and letrecs of one closed expression."""

    def __init__(self, root: Core) -> None:
        self.groups: set[int] = set()
        self._bound: dict[str, Group] = {}
        self._free: dict[int, tuple[str, ...]] = {}
        self._known: set[int] = set()
        self._values: set[str] = set()
        self._visit(root)
        self._close()

    def __contains__(self, group: Group) -> bool:
        return id(group) in self.groups

    def _visit(self, root: Core) -> None:
        stack = [(root, False)]
        while stack:
            node, called = stack.pop()
            match node:
                case Var():
                    if not called:
                        self._values.add(node.name)
                case App():
                    if isinstance(node.fun, Lambda):
                        self._match(node.fun.param, node.arg)
                    stack.extend(((node.fun, True), (node.arg, False)))
                case Letrec():
                    self._letrec(node)
                    stack.append((node.body, called))
                    stack.extend((each.body, False) for each in node.lambdas)
                case Lambda():
                    self._free[id(node)] = node.free
                    if not called and id(node) not in self._known:
                        self.groups.add(id(node))
                    stack.append((node.body, False))
                case _:
                    stack.extend((each, False) for each in children(node))

    def _match(self, param: Pattern, arg: Core) -> None:
        """Note which variables of a `let` are bound to lambdas."""
        match param, arg:
            case PVar(), Lambda():
                self._bound[param.name] = arg
                self._known.add(id(arg))
            case PPair(), Prim(op=op, args=(left, right)) if op == CONS:
                self._match(param.car, left)
                self._match(param.cdr, right)

    def _letrec(self, node: Letrec) -> None:
        self._free[id(node)] = node.free
        for name in node.names:
            self._bound[name] = node

    def _close(self) -> None:
        """Escaping is contagious: from a closure to what it holds."""
        pending = [self._bound[name] for name in self._values if name in self._bound]
        names = [name for each in self.groups for name in self._free[each]]
        pending.extend(self._bound[name] for name in names if name in self._bound)
        while pending:
            group = pending.pop()
            if id(group) not in self.groups:
                self.groups.add(id(group))
                free = self._free[id(group)]
                pending.extend(self._bound[v] for v in free if v in self._bound)

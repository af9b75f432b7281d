"""The functions of a module: their numbers, which escape, which are still to come.

    (let loop ((i 0)) ... (loop (+ i 1)))   loop is called: no closure
    (map (lambda (x) (* a x)) xs)           the lambda is a value: it escapes

A lambda escapes unless it is applied on the spot, or bound by `let` or `letrec` to a
variable that is only called. What an escaping lambda takes from outside escapes too:
its closure holds it. The other functions are known wherever they are called, and get
their free variables in registers (Steele 1978; Appel 1992).
"""

from collections.abc import Callable

from retape.engines.vlad.compiler.ir._ir import Register
from retape.engines.vlad.compiler.lower._builder import Env, Known
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


class Functions:
    """Numbers functions, each once, and remembers those whose bodies are to be made.

    Attributes:
        definitions: Those of the program, and the builtins.
        escapes: The lambdas and groups that need closures, by identity.
        lambdas: The functions of lambdas that have been met.
        groups: The functions of each group that has been met.
        kept: What identities stand for: it must not be freed.
        pending: Functions without a body: number, source, environment, free variables.
    """

    def __init__(
        self, definitions: dict[str, Lambda], fresh: Callable[[str], Register]
    ) -> None:
        self.definitions = definitions
        self.escapes: dict[int, bool] = {}
        self.lambdas: dict[int, int] = {}
        self.groups: dict[int, tuple[int, ...]] = {}
        self.kept: list[object] = []
        self.pending: list[tuple[int, Lambda, Env, tuple[Register, ...]]] = []
        self._fresh = fresh
        self._globals: dict[str, int] = {}
        self._analysed: set[int] = set()
        self._count = 0

    def number(self) -> int:
        self._count += 1
        return self._count - 1

    def analyse(self, core: Core) -> None:
        escapes = Escapes(core)
        for group in escapes.groups:
            self.escapes[group] = True

    def analyse_once(self, source: Lambda) -> None:
        if id(source) not in self._analysed:
            self._analysed.add(id(source))
            self.analyse(source.body)

    def later(self, source: Lambda, env: Env, free: tuple[Register, ...]) -> int:
        index = self.number()
        self.pending.append((index, source, env, free))
        return index

    def global_(self, name: str) -> int:
        if name not in self._globals:
            source = self.definitions[name]
            self.analyse(source.body)
            self._globals[name] = self.later(source, {}, ())
        return self._globals[name]

    def environment(self, free: tuple[str, ...]) -> tuple[Env, tuple[Register, ...]]:
        names = tuple(self._fresh(name) for name in free)
        return dict(zip(free, names, strict=True)), names

    def lift(self, core: Letrec) -> tuple[int, ...]:
        inner, free = self.environment(core.free)
        indices = tuple(self.number() for _ in core.names)
        for name, index, source in zip(core.names, indices, core.lambdas, strict=True):
            inner[name] = Known(index, source, free)
        for index, source in zip(indices, core.lambdas, strict=True):
            self.pending.append((index, source, inner, free))
        return indices

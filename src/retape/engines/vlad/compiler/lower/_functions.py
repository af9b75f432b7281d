"""The functions of a module: their numbers, which escape, which are still to come."""

from collections.abc import Callable

from retape.engines.vlad.compiler.ir._ir import Register
from retape.engines.vlad.compiler.lower._builder import Env, Known
from retape.engines.vlad.compiler.lower._escape import Escapes
from retape.engines.vlad.language._core import Core, Lambda, Letrec


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

    def environment(
        self, free: tuple[Register, ...]
    ) -> tuple[Env, tuple[Register, ...]]:
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

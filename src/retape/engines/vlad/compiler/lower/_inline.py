"""Pass: which calls are replaced by the body of the function that they call.

Builtins always; definitions if they are small and cannot reach themselves. A budget
for each function and one for the program keep the replacement from growing them without
bound: the C compiler's time for a function grows faster than the function.
"""

from retape.engines.vlad.language._builtins import is_builtin
from retape.engines.vlad.language._core import Global, Lambda, walk

SMALL = 40
"""Expressions in a body that is worth copying."""

BUDGET = 20_000
OF_EACH = 1_000


class Inlining:
    """Decides call by call."""

    def __init__(self, definitions: dict[str, Lambda]) -> None:
        self.definitions = definitions
        self.spent = self.spent_here = 0
        self._sizes: dict[str, int] = {}
        self._recursive: dict[str, bool] = {}

    def begin(self) -> None:
        """Begin a function."""
        self.spent_here = 0

    def enter(self, name: str) -> bool:
        """Tell whether to inline a call of this definition here, within the budget."""
        if is_builtin(self.definitions[name]):
            return True
        size = self._size(name)
        if size > SMALL or self.spent + size > BUDGET:
            return False
        if self.spent_here + size > OF_EACH:
            return False
        if self._is_recursive(name):
            return False
        self.spent += size
        self.spent_here += size
        return True

    def _size(self, name: str) -> int:
        if name not in self._sizes:
            self._sizes[name] = sum(1 for _ in walk(self.definitions[name].body))
        return self._sizes[name]

    def _is_recursive(self, name: str) -> bool:
        if name not in self._recursive:
            self._recursive[name] = name in self._reachable(name)
        return self._recursive[name]

    def _reachable(self, name: str) -> set[str]:
        seen: set[str] = set()
        pending = [name]
        while pending:
            for node in walk(self.definitions[pending.pop()].body):
                if isinstance(node, Global) and node.name not in seen:
                    seen.add(node.name)
                    pending.append(node.name)
        return seen

"""What a compiled function prints, from the reals that it writes."""

from retape.engines.vlad.python.expressions._unit import Printed, Unit
from retape.engines.vlad.python.read._types import BOOL, INT


class Printer:
    """Takes the reals: the number of a `print`, and then what is printed by it."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self._now: Printed | None = None
        self._values: list[float] = []

    def begin(self) -> None:
        """Forget what a run has left that was stopped."""
        self._now, self._values = None, []

    def __call__(self, value: float) -> None:
        if self._now is None:
            self._now = self._unit.prints[int(value)]
        else:
            self._values.append(value)
        if len(self._values) == self._now.count:
            done, values = self._now, self._values
            self.begin()
            print(_as_printed(done, values), end=done.end)


def _as_printed(done: Printed, values: list[float]) -> str:
    numbers = iter(values)
    found: list[str] = []
    for part in done.parts:
        if isinstance(part, str):
            found.append(part)
            continue
        type_, form = part
        value = next(numbers)
        shown = bool(value) if type_ is BOOL else int(value) if type_ is INT else value
        found.append(format(shown, form) if form else str(shown))
    return "".join(found)

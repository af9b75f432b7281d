"""The private parts of the engine that many tests need; nothing else imports them.

`forget`: a test follows no plan that an earlier one has left. There is no public way,
since a process has no reason to forget. `cost_again`: what plans compare is the cost of
what is run again, and a report counts operators.
"""

from typing import Any

from retape.engines.eager.plan._book import forget_plans


def forget() -> None:
    """All plans of this process."""
    forget_plans()


def cost_again(run: Any, found: Any) -> int:
    """The cost of all that a run has computed again, as the plans of an estimate do."""
    known: Any = found.known
    return run._tally.cost(known.measured.costs)

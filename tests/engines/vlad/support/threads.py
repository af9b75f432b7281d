"""Several threads at once."""

import threading
from collections.abc import Callable


def at_once(*calls: Callable[[], object]) -> None:
    """Call each in a thread of its own, and wait for all."""
    threads = [threading.Thread(target=call) for call in calls]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

"""The interpreter and the hybrid on the example, n = 100: seconds and steps."""

import time
from typing import Any

from benchmarks.vlad.measure import program_text

import retape
import retape.driver
from retape.engines.vlad.language._diagnostics import Source
from retape.engines.vlad.language._program import Session
from retape.engines.vlad.session._engines import Setting, make_engine


def main() -> None:
    plan = retape.logarithmic(stage=10_000)
    taken: dict[str, float] = {}
    for name in ("interpreter", "hybrid"):
        for l in (10, 20, 40):  # noqa: E741
            numbers = iter([100.0, float(l), 3.0])
            reports: list[Any] = []
            setting = Setting(plan, lambda it=numbers: next(it), print, reports.append)
            program = Session().add(Source("example", program_text("checkpoint")))
            engine = make_engine(name, program, setting)
            began = time.process_time()
            engine.evaluate(0)
            seconds = time.process_time() - began
            executed = 2 * reports[0].length + reports[0].advances
            taken[name] = seconds
            print(
                f"{name}, n=100, l={l}: {seconds:.2f} s, {reports[0].length} steps, "
                f"{1e6 * seconds / executed:.2f} us for each of {executed} executed"
            )
    ratio = taken["hybrid"] / taken["interpreter"]
    print(f"the hybrid takes {ratio:.2f} times the interpreter's time")


if __name__ == "__main__":
    main()

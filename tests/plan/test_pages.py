"""Every example in the pages on plans, schedules and the driver runs as printed."""

import doctest
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


def examples(text: str) -> str:
    """The `python` blocks of a page, one after the other."""
    return "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))


@pytest.mark.parametrize("page", ["plans.md", "schedules.md", "driver.md"])
def test_the_examples_of_a_page(page):
    blocks = examples((DOCS / page).read_text())
    test = doctest.DocTestParser().get_doctest(blocks, {}, page, page, 0)
    assert len(test.examples) > 3
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    assert runner.run(test).failed == 0

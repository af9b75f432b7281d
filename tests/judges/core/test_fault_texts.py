"""Texts of what is passed by mistake, or printed: short, and of the thing itself."""

from __future__ import annotations

from typing import Any

import pytest

import retape


@pytest.mark.parametrize("value", ["20", 2.5, None, True, [3]])
@pytest.mark.parametrize("name", ["snapshots", "stage"])
def test_a_count_of_another_type_is_told_its_type_and_not_its_size(name, value):
    if name == "stage" and value is None:
        return
    given: dict[str, Any] = {"snapshots": 3} | {name: value}
    with pytest.raises(retape.PlanError) as raised:
        retape.fixed_space(**given)
    assert f"this is a `{type(value).__name__}`" in str(raised.value)
    assert "at least one" not in str(raised.value)

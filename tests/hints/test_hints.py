"""A hint in an error message is executed, and it does what it says.

What a message tells its reader to write is written, and then works. The tables hold one
row for every hint that stands in the sources.
"""

from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import retape
from tests.hints import (
    core_plans,
    core_runs,
    core_stores,
    jax_adapters,
    jax_devices,
    jax_gradients,
    jax_layers,
    packages,
    torch_forms,
    torch_gradients,
    trainers,
    vlad_functions,
    vlad_programs,
)
from tests.hints.elsewhere import ELSEWHERE
from tests.hints.rows import Row, follow
from tests.hints.sources import Hint, hints

TABLES: tuple[ModuleType, ...] = (
    vlad_programs,
    vlad_functions,
    jax_gradients,
    jax_layers,
    jax_adapters,
    jax_devices,
    packages,
    torch_forms,
    torch_gradients,
    trainers,
    core_runs,
    core_plans,
    core_stores,
)
ROWS = [(table, row) for table in TABLES for row in table.ROWS]
CELLS = [
    pytest.param(
        table,
        row,
        id=f"{table.__name__.rpartition('.')[2]}-{row.says}",
        marks=[pytest.mark.slow] if row.slow else [],
    )
    for table, row in ROWS
]


# PyTorch says it of itself, when `scan` is first used.
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.slow(
    "jax_gradients-pass `retape.fixed_space`",
    "jax_gradients-use `retape.jax.value_and_grad`",
    "torch_forms-pass a list of overloads",
    "core_runs-Use a plan with fewer snapshots and `stage=1`",
    "vlad_programs-set `PYTHONIOENCODING=utf-8`",
)
@pytest.mark.parametrize(("table", "row"), CELLS)
def test_a_hint_does_what_it_says(
    table: ModuleType,
    row: Row,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given: dict[str, Any] = {
        "tmp_path": tmp_path, "monkeypatch": monkeypatch, "capsys": capsys,
    }  # fmt: skip
    follow(row, vars(table) | given, tmp_path)


def without_a_row(found: list[Hint], said: list[str]) -> list[str]:
    """The places of hints that are said less often than they stand somewhere."""
    places = Counter(hint.phrase for hint in found)
    kinds = sorted({hint.phrase: hint for hint in found}.values(), key=_most_known)
    for phrase in said:
        open_ = (hint for hint in kinds if places[hint.phrase] > 0)
        told = next((hint for hint in open_ if hint.is_said_by(phrase)), None)
        if told is not None:
            places[told.phrase] -= 1
    missing = [hint for hint in kinds for _ in range(places[hint.phrase])]
    return [f"{hint.place}: {hint.phrase}" for hint in missing]


def _most_known(hint: Hint) -> int:
    return -hint.known


def test_every_hint_has_a_row() -> None:
    found = hints()
    rows = [row.says for _, row in ROWS]
    missing = without_a_row(found, rows + ELSEWHERE)
    assert not missing, "\n".join(missing)
    needed = without_a_row(found, rows)
    assert len(needed) == len(ELSEWHERE), f"{needed} have no row, and {ELSEWHERE}"


def test_hints_are_found_in_all_forms_of_messages(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(
        '"""Use `no_hint` of a docstring."""\n'
        "def advise(name, more):\n"
        "    said = 'This run of `f` is long. Pass ' '`stage=2`, or write `a` here.'\n"
        "    return f'`{name}` cannot be: call `{name}(x)`' + ('; set `B`' if more "
        "else '.')\n"
    )
    phrases = [hint.phrase for hint in hints(tmp_path)]
    assert sorted(phrases) == [
        "Pass `stage=2`", "call `{}(x)`", "set `B`", "write `a`"
    ]  # fmt: skip


def test_a_hint_without_a_row_is_found() -> None:
    found = [Hint("a:1", "pass `x=1`", "x=1"), Hint("b:2", "pass `{}`", "{}")] * 2
    said = ["pass `x=1`", "pass `y`", "pass `z`"]
    assert without_a_row(found, said) == ["a:1: pass `x=1`"]


WRONG = "import retape\nretape.fixed_space(snapshots=0)"
"""It is refused: a plan of no snapshots; the message says what there is at least."""
LIES = {
    "not refused": Row("at least one", "3 + 4", "1", "1"),
    "not said": Row("call `nobody()`", WRONG, "nobody()", "1"),
    "not followed": Row("`snapshots=0`", WRONG, "1", "1"),
    "fails when followed": Row("`snapshots=0`", WRONG, WRONG, "1"),
    "another value": Row("`snapshots=0`", WRONG, "'snapshots=0'; 1", "2"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_seen(name: str, tmp_path: Path) -> None:
    with pytest.raises((AssertionError, retape.RetapeError)):
        follow(LIES[name], {}, tmp_path)


def test_what_is_no_lie_passes(tmp_path: Path) -> None:
    follow(Row("`snapshots=0`", WRONG, "'snapshots=0'; 1", "1"), {}, tmp_path)

"""The command: what it prints, draws and refuses."""

import subprocess
import sys

import pytest

from retape.cli import main
from retape.schedule import Mixed, Schedule, TierCosts, TwoTier
from retape.viz import draw_text, layout


def test_plan_predicts(capsys):
    assert main(["plan", "--steps", "1000", "--snapshots", "9"]) == 0
    assert "3999 advances (each step at most 5 times)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--sweeps", "3"], "17 snapshots"),
        (["--logarithmic"], "7 snapshots"),
        (["--logarithmic", "--split", "bisection"], "9 snapshots"),
        (["--segments"], "in 28 stages of at most 36"),
        (["--within", "1 kB", "--capsule", "10", "--tape", "20"], "of at most 36"),
        (["--snapshots", "4", "--stage", "50"], "in 20 stages of at most 50"),
    ],
)
def test_each_plan_can_be_named(arguments, text, capsys):
    assert main(["plan", "--steps", "1000", *arguments]) == 0
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--snapshots", "0"], "retape: `snapshots=0` cannot be"),
        (["--within", "1 kB"], "retape: `within(1000)` counts bytes"),
        (["--within", "1 kB", "--stage", "3"], "`stage=3` is not an option of `with"),
        (["--logarithmic", "--tape", "much"], "`tape='much'` is not an amount"),
    ],
)
def test_errors_are_printed_and_end_with_1(arguments, text, capsys):
    assert main(["plan", "--steps", "10", *arguments]) == 1
    assert text in capsys.readouterr().err


def test_tapes_and_tiers_can_be_asked_for(capsys):
    assert main(["plan", "--steps", "60", "--snapshots", "4", "--tapes"]) == 0
    assert "tapes kept" in capsys.readouterr().out
    assert main(["plan", "--steps", "60", "--memory", "2", "--disk", "9"]) == 0
    assert "snapshots on disk; cost" in capsys.readouterr().out
    tiers = ["--memory", "1 kB", "--disk", "2 kB", "--capsule", "100", "--tape", "100"]
    assert main(["plan", "--steps", "60", *tiers]) == 0
    assert "cost" in capsys.readouterr().out
    assert main(["plan", "--steps", "60", "--disk", "2", "--segments"]) == 1
    assert "`--disk` goes with `--memory`" in capsys.readouterr().err
    assert main(["plan", "--steps", "60", "--tapes", "--segments"]) == 1
    assert "is not an option of `segments`" in capsys.readouterr().err
    assert main(["plot", "--steps", "9", "--snapshots", "2", "--tapes"]) == 0
    assert "< swept back from a kept tape" in capsys.readouterr().out


def test_a_negative_length_is_refused(capsys):
    assert main(["plan", "--steps", "-3", "--segments"]) == 1
    assert "`--steps -3` cannot be" in capsys.readouterr().err


def test_wrong_usage_ends_with_2(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["plan", "--steps", "10"])
    assert ended.value.code == 2
    assert "one of the arguments --snapshots" in capsys.readouterr().err


def test_plot_draws_text(capsys):
    assert main(["plot", "--steps", "6", "--snapshots", "2"]) == 0
    assert capsys.readouterr().out.startswith("o>>o>#\n|  o#\n|  #\noo#\n")
    main(["plot", "--steps", "50", "--snapshots", "2", "--rows", "3"])
    assert "... and 47 more rows" in capsys.readouterr().out


def test_plot_writes_a_figure(tmp_path, capsys):
    out = tmp_path / "figure.svg"
    options = ["--steps", "30", "--snapshots", "3", "--out", str(out)]
    assert main(["plot", *options]) == 0
    assert out.read_text().count("<path") > 50
    assert capsys.readouterr().out == f"wrote {out}\n"


def test_the_module_is_the_command():
    command = [sys.executable, "-m", "retape", "plan", "--steps", "4", "--segments"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("4 steps in 2 stages of at most 2")


def test_every_step_is_swept_back_once_in_a_layout():
    tiers = TwoTier(25, 1, 2, TierCosts(disk_write=1))
    for schedule in (Schedule(40, 3, 4), tiers, Mixed(30, 3), Mixed(31, 6, 2, 1, 4)):
        drawn = layout(schedule)
        stages = [row.stage for row in reversed(drawn.rows)]
        assert [start for start, _ in stages] == [0, *(stop for _, stop in stages)][:-1]
        assert all(line.first < line.last for line in drawn.lines)
        assert drawn.length == schedule.length


def test_long_schedules_share_columns():
    text = draw_text(Schedule(1000, 5, 20), width=50)
    assert max(map(len, text.splitlines()[:-1])) == 50

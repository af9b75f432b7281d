"""Schedules of this library beside those of others: time to make, advances, writes.

    python benchmarks/schedules/compare.py [--snapshots 10] [--limit 20]

Each entry is made in a process of its own, and given up after `--limit` seconds. The
time is that of going through all actions of the schedule once.
"""

import argparse
import json
import subprocess
import sys
import warnings
from time import perf_counter

LENGTHS = (10**3, 10**4, 10**5, 10**6)
OURS = ("retape binomial", "retape bisection", "retape treeverse", "retape online")
PEERS = ("cs Multistage", "cs Revolve", "cs HRevolve", "cs DiskRevolve", "pyrevolve")


def main() -> None:
    """Print the table, or make one entry of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--snapshots", type=int, default=10)
    parser.add_argument("--limit", type=float, default=20.0)
    parser.add_argument("--largest", type=int, default=LENGTHS[-1])
    parser.add_argument("--entry", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.entry:
        name, length = options.entry[0], int(options.entry[1])
        print(json.dumps(entry(name, length, options.snapshots)))
        return
    print(f"{options.snapshots} snapshots; cs = checkpoint_schedules")
    print(f"{'schedule':18}{'n':>9}{'seconds':>10}{'advances':>12}{'writes':>10}")
    for length in LENGTHS:
        if length <= options.largest:
            for name in (*OURS, *PEERS):
                print(line(name, length, options), flush=True)


def line(name: str, length: int, options: argparse.Namespace) -> str:
    """One line of the table, made in another process."""
    command = [sys.executable, __file__, "--entry", name, str(length)]
    command += ["--snapshots", str(options.snapshots)]
    start = f"{name:18}{length:9}"
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=options.limit
        )
    except subprocess.TimeoutExpired:
        return f"{start}   given up after {options.limit:g} s"
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"signal {-done.returncode}"])[-1]
        return f"{start}   failed: {why[:50]}"
    seconds, advances, writes = json.loads(done.stdout)
    return f"{start}{seconds:10.3f}{advances:12}{writes:10}"


def entry(name: str, length: int, snapshots: int) -> tuple[float, int, int]:
    """Seconds, advances and writes of one schedule."""
    library, kind = name.split(" ") if " " in name else (name, "")
    if library == "retape":
        return ours(kind, length, snapshots)
    if library == "cs":
        return theirs(kind, length, snapshots)
    return revolve(length, snapshots)


def ours(kind: str, length: int, snapshots: int) -> tuple[float, int, int]:
    """One of this library's."""
    from retape.schedule import Advance, Schedule, Store, online_actions

    began = perf_counter()
    if kind == "online":
        stream = online_actions(length, snapshots)
    else:
        stream = iter(Schedule(length, snapshots, split=kind))
    advances = writes = 0
    for action in stream:
        if type(action) is Advance:
            advances += action.stop - action.start
        elif type(action) is Store:
            writes += 1
    return perf_counter() - began, advances, writes


def theirs(kind: str, length: int, snapshots: int) -> tuple[float, int, int]:
    """One of `checkpoint_schedules`."""
    warnings.simplefilter("ignore")
    import checkpoint_schedules as cs

    began = perf_counter()
    schedule = {
        "Multistage": lambda: cs.MultistageCheckpointSchedule(length, snapshots, 0),
        "Revolve": lambda: cs.Revolve(length, snapshots),
        "HRevolve": lambda: cs.HRevolve(length, snapshots, 0),
        "DiskRevolve": lambda: cs.DiskRevolve(length, snapshots),
    }[kind]()
    advances = writes = 0
    for action in schedule:
        if isinstance(action, cs.Forward):
            writes += action.write_ics
            if not action.write_adj_deps:
                advances += action.n1 - action.n0
        elif isinstance(action, cs.EndReverse):
            break
    return perf_counter() - began, advances, writes


def revolve(length: int, snapshots: int) -> tuple[float, int, int]:
    """`pyrevolve`, whose schedule is Algorithm 799 in C++.

    Its count of snapshots leaves the start state out.
    """
    from pyrevolve.crevolve import CRevolve  # type: ignore[import-not-found]

    began = perf_counter()
    schedule = CRevolve(snapshots, length, None)
    advances = writes = 0
    while True:
        action = schedule.next()
        name = str(action.type).rpartition(".")[2]
        if name == "ADVANCE":
            advances += schedule.capo - schedule.old_capo
        elif name == "TAKESHOT":
            writes += 1
        elif name in ("TERMINATE", "ERROR"):
            break
    return perf_counter() - began, advances, writes


if __name__ == "__main__":
    main()

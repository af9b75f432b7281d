"""Schedules of this library beside those of others: time to make, advances, writes.

    python -m benchmarks.schedules.compare [--snapshots 10] [--limit 20]

Each entry is made in a process of its own, and given up after `--limit` processor
seconds; what was given up or failed is not tried at greater lengths. The time is
processor time of going through all actions of the schedule once, the least of three
goes where one takes less than a second; what is made once and kept, such as a table, is
part of the first go only.

The last lines say, for each length, how the fastest peer of the same kind compares: its
time over ours, and its advances over ours. A ratio below 1 ends the program with 1.
"""

import argparse
import json
import os
import subprocess
import sys
import warnings
from threading import Thread
from time import process_time, sleep

LENGTHS = (10**3, 10**4, 10**5, 10**6)
OURS = ("retape binomial", "retape bisection", "retape treeverse", "retape online")
PEERS = ("cs Multistage", "cs Revolve", "cs HRevolve", "pyrevolve")
KINDS = {"retape binomial": PEERS, "retape mixed": ("cs Mixed",)}
GIVEN_UP = 124


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
        Thread(target=give_up, args=(options.limit,), daemon=True).start()
        print(json.dumps(entry(name, length, options.snapshots)))
        return
    print(f"{options.snapshots} snapshots; cs = checkpoint_schedules")
    print(f"{'schedule':18}{'n':>9}{'seconds':>10}{'advances':>12}{'writes':>10}")
    made: dict[tuple[str, int], tuple[float, int, int]] = {}
    names = (*OURS, *PEERS, "retape mixed", "cs Mixed")
    for length in (n for n in LENGTHS if n <= options.largest):
        for name in names:
            print(line(name, length, options, made), flush=True)
        names = tuple(name for name in names if (name, length) in made)
    sys.exit(verdict(made))


def verdict(made: dict[tuple[str, int], tuple[float, int, int]]) -> int:
    """How we compare; 1 if a peer is better anywhere."""
    worse = 0
    print("fastest peer's time over ours, best peer's advances over ours")
    for (name, length), (seconds, advances, _) in made.items():
        peers = [
            made[peer, length] for peer in KINDS.get(name, ()) if (peer, length) in made
        ]
        if peers:
            faster, fewer = min(p[0] for p in peers), min(p[1] for p in peers)
            worse |= faster < seconds or fewer < advances
            ratios = f"{faster / seconds:10.1f}{fewer / advances:12.4f}"
            print(f"{name:18}{length:9}{ratios}")
    print("A PEER IS BETTER" if worse else "no peer is faster or advances less")
    return int(worse)


def line(
    name: str,
    length: int,
    options: argparse.Namespace,
    made: dict[tuple[str, int], tuple[float, int, int]],
) -> str:
    """One line of the table, made in another process."""
    command = [sys.executable, __file__, "--entry", name, str(length)]
    command += ["--snapshots", str(options.snapshots), "--limit", str(options.limit)]
    start = f"{name:18}{length:9}"
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == GIVEN_UP:
        return f"{start}   given up after {options.limit:g} s"
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"signal {-done.returncode}"])[-1]
        return f"{start}   failed: {why[:50]}"
    seconds, advances, writes = made[name, length] = json.loads(done.stdout)
    return f"{start}{seconds:10.3f}{advances:12}{writes:10}"


def give_up(limit: float) -> None:
    """End this process when it has used its time; a limit of the system's own would
    make its clock coarse."""
    while process_time() < limit:
        sleep(0.2)
    os._exit(GIVEN_UP)


def entry(name: str, length: int, snapshots: int) -> tuple[float, int, int]:
    """Seconds, advances and writes of one schedule."""
    library, kind = name.split(" ") if " " in name else (name, "")
    if library == "pyrevolve":
        return revolve(length, snapshots)
    make = ours if library == "retape" else theirs
    goes = [make(kind, length, snapshots)]
    while goes[0][0] < 1.0 and len(goes) < 3:
        goes.append(make(kind, length, snapshots))
    return min(goes)


def ours(kind: str, length: int, snapshots: int) -> tuple[float, int, int]:
    """One of this library's."""
    from retape.schedule import Advance, Mixed, OnlineBinomial, Schedule, Store, Tape

    began = process_time()
    if kind == "online":
        stream = OnlineBinomial(snapshots).actions(length)
    elif kind == "mixed":
        stream = iter(Mixed(length, snapshots))
    else:
        stream = iter(Schedule(length, snapshots, split=kind))
    advances = writes = 0
    for action in stream:
        if type(action) is Advance:
            advances += action.stop - action.start
        elif type(action) is Store or type(action) is Tape:
            writes += 1
    return process_time() - began, advances, writes


def theirs(kind: str, length: int, snapshots: int) -> tuple[float, int, int]:
    """One of `checkpoint_schedules`."""
    warnings.simplefilter("ignore")
    import checkpoint_schedules as cs

    began = process_time()
    schedule = {
        "Multistage": lambda: cs.MultistageCheckpointSchedule(length, snapshots, 0),
        "Revolve": lambda: cs.Revolve(length, snapshots),
        "HRevolve": lambda: cs.HRevolve(length, snapshots, 0),
        "Mixed": lambda: cs.MixedCheckpointSchedule(length, snapshots),
    }[kind]()
    advances = writes = 0
    for action in schedule:
        if isinstance(action, cs.Forward):
            keeps = action.storage in (cs.StorageType.RAM, cs.StorageType.DISK)
            writes += action.write_ics or keeps
            if not action.write_adj_deps:
                advances += action.n1 - action.n0
        elif isinstance(action, cs.EndReverse):
            break
    return process_time() - began, advances, writes


def revolve(length: int, snapshots: int) -> tuple[float, int, int]:
    """`pyrevolve`, whose schedule is Algorithm 799 in C++.

    Its count of snapshots leaves the start state out.
    """
    from pyrevolve.crevolve import CRevolve  # type: ignore[import-not-found]

    began = process_time()
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
    return process_time() - began, advances, writes


if __name__ == "__main__":
    main()

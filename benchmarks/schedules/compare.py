"""Schedules of this library beside those of others: time to make, advances, writes.

    python -m benchmarks.schedules.compare [--snapshots 10] [--limit 20]

Each entry is made in a process of its own, and given up after `--limit` processor
seconds; what was given up or failed is not tried at greater lengths. The time is
processor time of going through all actions of the schedule once, the least of three
goes where one takes less than a second; what is made once and kept, such as a table, is
part of the first go only.

The last table says, for each length, how the fastest peer of the same kind compares:
its time over ours, and its advances over ours. A ratio below 1 ends the program with 1.
"""

import json
import os
import sys
import warnings
from threading import Thread
from time import process_time, sleep

from benchmarks.harness import Table, asked, in_a_process

LENGTHS = (10**3, 10**4, 10**5, 10**6)
OURS = ("retape binomial", "retape bisection", "retape treeverse", "retape online")
PEERS = ("cs Multistage", "cs Revolve", "cs HRevolve")
KINDS = {"retape binomial": PEERS, "retape mixed": ("cs Mixed",)}

Made = dict[tuple[str, int], tuple[float, int, int]]
"""By name and length: seconds, advances, writes."""


def main() -> None:
    """Print the table, or make one entry of it."""
    options = {"snapshots": 10, "limit": 20.0, "largest": LENGTHS[-1], "entry": ""}
    given = asked(__doc__, quick={"limit": 2.0, "largest": 10**4}, **options)
    if given.entry:
        name, length = given.entry.rsplit(" ", 1)
        Thread(target=give_up, args=(given.limit,), daemon=True).start()
        print(json.dumps({"entry": entry(name, int(length), given.snapshots)}))
        return
    title = f"{given.snapshots} snapshots; cs = checkpoint_schedules"
    table = Table("schedule", "n", "seconds", "advances", "writes", title=title)
    made: Made = {}
    names = (*OURS, *PEERS, "retape mixed", "cs Mixed")
    words = "--snapshots", str(given.snapshots), "--limit", str(given.limit)
    for length in (n for n in LENGTHS if n <= given.largest):
        for name in names:
            what = "benchmarks.schedules.compare", "--entry", f"{name} {length}"
            found = in_a_process(*what, *words)
            if "entry" in found:
                made[name, length] = found["entry"]
            table.row(name, length, *found.get("entry", (found.get("why_not"), "", "")))
        names = tuple(name for name in names if (name, length) in made)
    sys.exit(verdict(made))


def verdict(made: Made) -> int:
    """How we compare; 1 if a peer is better anywhere."""
    worse, title = 0, "fastest peer over ours"
    table = Table("schedule", "n", "time", "advances", title=title)
    for (name, length), (seconds, advances, _) in made.items():
        peers = [
            made[peer, length] for peer in KINDS.get(name, ()) if (peer, length) in made
        ]
        if peers:
            faster, fewer = min(p[0] for p in peers), min(p[1] for p in peers)
            worse |= faster < seconds or fewer < advances
            table.row(name, length, faster / seconds, fewer / advances)
    print("A PEER IS BETTER" if worse else "no peer is faster or advances less")
    return int(worse)


def give_up(limit: float) -> None:
    """End this process when it has used its time; a limit of the system's own would
    make its clock coarse."""
    while process_time() < limit:
        sleep(0.2)
    print(json.dumps({"why_not": f"given up after {limit:g} s"}), flush=True)
    os._exit(0)


def entry(name: str, length: int, snapshots: int) -> tuple[float, int, int]:
    """Seconds, advances and writes of one schedule."""
    library, kind = name.split(" ")
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


if __name__ == "__main__":
    main()

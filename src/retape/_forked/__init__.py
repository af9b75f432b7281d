"""Snapshots of what nobody can copy: forked processes.

The state of many codes lies in COMMON blocks, in static variables or in objects without
a copy. Nobody can read it, but the operating system can double it: a snapshot is a
process that waits. To go on from it, it forks once more, and one of the two runs on.
The pages that neither of them writes to are shared.

The caller's process steers and runs no step: its own hidden state is as before when the
run is over. A worker holds one capsule of the machine that it was forked with, and does
what it is told over a socket: advance, reverse, fork. What passes between processes is
the cotangent. A worker whose socket is closed ends, so none outlives the caller, in
whatever way that ends.

    the caller: _machine  == socket ==  _serve: a fork of the caller
                        both: _system
"""

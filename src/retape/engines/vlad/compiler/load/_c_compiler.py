"""A program's C to machine code, with the runtime that is part of every program."""

from collections.abc import Sequence
from pathlib import Path

from retape import _native_code as native_code

RUNTIME = Path(__file__).parents[2] / "runtime"
# No contraction to fused operations: the interpreters must give the same bits. And no
# pairs of loop variables in one register: they cost twice the latency (gcc 12).
FLAGS = tuple(
    "-std=c11 -O2 -fPIC -shared -fvisibility=hidden -ffp-contract=off "
    "-fno-math-errno -fno-tree-slp-vectorize".split()
)
IF_LARGE = ("-O1",)
"""For a program in parts: two thirds of gcc's time, and up to 12 % more of its own."""

TOOLS = native_code.Toolchain(
    language="C",
    variable="CC",
    commands=("gcc", "clang", "cc"),
    ziglang="cc",
    cache="vlad",
    user="the compiled engine",
    install="Install one, or `pip install retape[vlad]`",
    instead='use `engine="interpreter"`',
)


def build_entry() -> bytes:
    """Compile what CPython calls, the same for all programs, or find it in the cache.

    Raises:
        UnsupportedError: As `build`.
    """
    text = (RUNTIME / "entry.c").read_text(encoding="utf-8")
    return native_code.build(TOOLS, native_code.Program(text, ".c", FLAGS))


def build(files: Sequence[str], extra: Sequence[str] = ()) -> bytes:
    """Compile a program's C to a shared object, or find it in the cache.

    Of a first program 1 s was the runtime's, which is compiled once and linked to all.

    Args:
        files: The C files, which are compiled at the same time.
        extra: More flags for these, such as `IF_LARGE`.

    Raises:
        UnsupportedError: If there is no compiler, or all of them fail.
    """
    compiled = tuple(flag for flag in FLAGS if flag != "-shared")
    text = (RUNTIME / "runtime.c").read_text(encoding="utf-8")
    runtime = native_code.Program(text, ".c", (*compiled, "-c"), headers=(RUNTIME,))
    first, *beside = files
    program = native_code.Program(
        first,
        ".c",
        (*FLAGS, *extra),
        ("-lm",),
        (RUNTIME,),
        beside=tuple(beside),
        linked=runtime,
    )
    return native_code.build(TOOLS, program)

"""A program's C to machine code, with the runtime that is part of every program."""

from collections.abc import Sequence
from pathlib import Path

from retape import _native_code as native_code
from retape.engines.vlad.compiler.ir._operators_header import operators_header

RUNTIME = Path(__file__).parents[2] / "runtime"
# No contraction to fused operations: the interpreters must give the same bits. And no
# pairs of loop variables in one register: they cost twice the latency (gcc 12).
FLAGS = tuple(
    "-std=c11 -O2 -fPIC -shared -fvisibility=hidden -ffp-contract=off "
    "-fno-math-errno -fno-tree-slp-vectorize".split()
)
_SAVED = "-fcaller-saves"
IF_TYPED = ("-O1", _SAVED)
"""For a program whose speed is typed code's.

Of what `-O2` adds, this flag alone matters to it: all registers for doubles are the
callers', and loops have the cold calls of the runtime in them. Without it the logistic
map took 2.5 times as long, with it 1.0 (ten functions: 0.94 to 1.01, their gradients
0.8 to 1.1; gcc 12), in two thirds of `-O2`'s time of the compiler.
"""
IF_LARGE = ("-O1", _SAVED)
"""For a program in parts whose speed may be the general form's."""
IF_LARGE_AND_TYPED = ("-Og", _SAVED)
"""For one whose speed is typed code's: half of the compiler's time of `-O1`.

It was within a tenth of `-O1`'s speed with the same flag, and faster than without.
"""

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


def effort_for(*, large: bool, typed: bool) -> tuple[str, ...]:
    """Flags that say how much the C compiler is to think of each line.

    Args:
        large: Whether the program is in parts.
        typed: Whether its general form is seldom run.
    """
    if large:
        return IF_LARGE_AND_TYPED if typed else IF_LARGE
    return IF_TYPED if typed else ()


def complete(text: str) -> str:
    """A file of C with what the table of operators is in C before it."""
    return operators_header() + text


def build(
    files: Sequence[str],
    extra: Sequence[str] = (),
    with_file: str = "runtime.c",
    *,
    cache: bool = True,
) -> bytes:
    """Compile a program's C to a shared object, or find it in the cache.

    Of a first program 1 s was the runtime's, which is compiled once and linked to all.

    Args:
        files: The C files, which are compiled at the same time.
        extra: More flags for these, see `effort_for`.
        with_file: What is linked to them.
        cache: Whether other processes are to find the object.

    Raises:
        UnsupportedError: If there is no compiler, or all of them fail.
    """
    compiled = tuple(flag for flag in FLAGS if flag != "-shared")
    text = complete((RUNTIME / with_file).read_text(encoding="utf-8"))
    runtime = native_code.Program(text, ".c", (*compiled, "-c"), headers=(RUNTIME,))
    first, *beside = map(complete, files)
    program = native_code.Program(
        first,
        ".c",
        (*FLAGS, *extra),
        ("-lm",),
        (RUNTIME,),
        beside=tuple(beside),
        linked=runtime,
    )
    return native_code.build(TOOLS, program, cache=cache)

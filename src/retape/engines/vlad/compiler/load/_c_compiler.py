"""A program's C to machine code, with the runtime that is part of every program."""

from pathlib import Path

from retape import _native_code as native_code
from retape.engines.vlad.compiler._pipeline import ProgramText
from retape.engines.vlad.compiler.ir._c_text import operators_header

RUNTIME = Path(__file__).parents[2] / "runtime"
# No contraction to fused operations: the interpreters must give the same bits. And no
# pairs of loop variables in one register: they cost twice the latency (gcc 12).
FLAGS = tuple(
    "-std=c11 -O2 -fPIC -shared -fvisibility=hidden -ffp-contract=off "
    "-fno-math-errno -fno-tree-slp-vectorize -pipe "
    "-Werror=implicit-function-declaration".split()
)
_SAVED = "-fcaller-saves"
OF_TYPED = ("-O1", _SAVED)
"""For typed code.

Of what `-O2` adds, this flag alone matters to it: all registers for doubles are the
callers', and loops have the cold calls of the runtime in them. Without it the logistic
map took 2.5 times as long, with it 1.0 (ten functions: 0.94 to 1.01, their gradients
0.8 to 1.1; gcc 12), in two thirds of `-O2`'s time of the compiler.
"""
OF_LESS = ((4_000, ("-Og", _SAVED)), (30_000, ("-O0",)))
"""For files of more lines than this, whose compiler's time would grow faster than they.

Of a sum of 200 calls in each other (46,000 lines three times) `-O1` took 109 s, `-Og`
38 s and `-O0` 14 s; its gradient took 0.31, 0.41 and 1.15 ms.
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


def _effort(text: str, *, typed: bool) -> tuple[str, ...]:
    """Flags that say how much the C compiler is to think of each line of a file."""
    chosen: tuple[str, ...] = OF_TYPED if typed else ()
    for lines, flags in OF_LESS:
        if text.count("\n") > lines:
            chosen = flags
    return chosen


def complete(text: str) -> str:
    """A file of C with what the table of operators is in C before it."""
    return operators_header() + text


def build(text: ProgramText, *, cache: bool = True) -> bytes:
    """Compile a program's C to a shared object, or find it in the cache.

    Of a first program 1 s was the runtime's, which is compiled once and linked to all.

    Args:
        text: The C files, which are compiled at the same time.
        cache: Whether other processes are to find the object.

    Raises:
        UnsupportedError: If there is no compiler, or all of them fail.
    """
    compiled = tuple(flag for flag in FLAGS if flag != "-shared")
    own = complete((RUNTIME / "runtime.c").read_text(encoding="utf-8"))
    runtime = native_code.Program(own, ".c", (*compiled, "-c"), headers=(RUNTIME,))
    first, *beside = text.files
    program = native_code.Program(
        complete(first),
        ".c",
        (*FLAGS, *_effort(first, typed=text.is_brief)),
        ("-lm",),
        (RUNTIME,),
        beside=tuple((complete(each), _effort(each, typed=True)) for each in beside),
        linked=runtime,
    )
    return native_code.build(TOOLS, program, cache=cache)

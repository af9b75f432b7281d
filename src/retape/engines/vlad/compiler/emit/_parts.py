"""A program's parts, each a C function of its own: one as a rule.

The C compiler's time for one function grows faster than the function: gcc 12 takes
25 ms for each function of a program of 20, 35 ms of 100 and 85 ms of 200. So a large
program is cut into parts of bounded size. Parts are cut between functions, and within
one where nothing is in registers: at a continuation that only frames lead to.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from retape.engines.vlad.compiler.emit._output import Output
from retape.engines.vlad.compiler.ir._ir import (
    Cont,
    Fun,
    Jump,
    local_functions,
    terms_of,
)

PART_TERMS = 600
"""Terms of one part: some 20 short functions, or a loop nest of 300 lines."""


@dataclass(slots=True, eq=False)
class Part:
    """What becomes one C function.

    Attributes:
        out: Its text.
        functions: The numbers of the functions that begin in it.
        terms: How much of the program it has.
        codes: The codes of frames that lead into it.
    """

    out: Output
    functions: list[int] = field(default_factory=list)
    terms: int = 0
    codes: list[int] = field(default_factory=list)


def grouped(functions: Iterable[Fun]) -> Iterator[list[Fun]]:
    """The functions, a part's together; those of a fix go with the one around them."""
    found: list[Fun] = []
    terms = 0
    for fun in functions:
        size = size_of(fun)
        if found and terms + size > PART_TERMS:
            yield found
            found, terms = [], 0
        found.append(fun)
        terms += size
    if found:
        yield found


def size_of(fun: Fun) -> int:
    """The terms of a function, with those of a fix in it."""
    bodies = [fun.body, *(local.body for local in local_functions(fun.body))]
    return sum(1 for body in bodies for _ in terms_of(body))


def is_closed(cont: Cont) -> bool:
    """Tell whether no jump in a continuation leads out of it."""
    bound = {each.name for each in terms_of(cont.cont) if isinstance(each, Cont)}
    return all(
        each.cont in bound for each in terms_of(cont.cont) if isinstance(each, Jump)
    )

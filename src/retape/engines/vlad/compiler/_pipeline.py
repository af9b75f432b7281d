"""The passes, on one page.

source -> data        _read      characters to lists with positions
       -> core        _expand    all syntax checked, all sugar removed
       -> CPS         _lower     Figs. 20 and 22; with _escape and _inline
       -> CPS         _prune     what is unused is gone
       -> C           _emit      Figs. 24 and 25, as gotos; with _live
       -> object      _build     the system's C compiler; cached
"""

from dataclasses import dataclass

from retape.engines.vlad._fault import Where
from retape.engines.vlad._program import Program, deep_recursion
from retape.engines.vlad.compiler._check import check
from retape.engines.vlad.compiler._emit import Emission
from retape.engines.vlad.compiler._ir import Module
from retape.engines.vlad.compiler._lower import Lowering
from retape.engines.vlad.compiler._prune import prune


@dataclass(frozen=True, slots=True)
class Compiled:
    """A program in C, with what the host needs to speak about it.

    Attributes:
        module: The program in the intermediate form, of which `text` is the C.
        places: Where the continuation of each frame's code stands.
    """

    module: Module
    text: str
    places: dict[int, Where]


def compile_program(program: Program) -> Compiled:
    """All passes but the C compiler's; the form is checked after each."""
    with deep_recursion():
        module = intermediate(program)
        emission = Emission(module)
        text = emission.text()
    return Compiled(module, text, emission.places)


def intermediate(program: Program) -> Module:
    """The passes that end in the intermediate form."""
    with deep_recursion():
        module = check(Lowering(program).lower(program.expressions))
        return check(prune(module))

"""The passes, on one page.

source -> data    language/_reader            characters to lists with positions
       -> core    language/_expander          all syntax checked, all sugar removed
       -> CPS     compiler/lower/_lower       Figs. 20 and 22; _functions, _calls
       -> CPS     compiler/ir/_dead_code      what is unused is gone
       -> C       compiler/emit/_emit         Figs. 24 and 25, as gotos; ir/_liveness
       -> typed   compiler/typed/_lower_typed what has only numbers, on plain doubles
       -> C       compiler/adjoint        and its adjoint; _useful, _ways, _recorded
       -> object  compiler/load/_c_compiler   the system's C compiler; cached
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from retape.engines.vlad.compiler.adjoint._emit_parts import NOTHING_TYPED, typed_text
from retape.engines.vlad.compiler.emit._emit import Emission
from retape.engines.vlad.compiler.ir._c_text import NEXT_FILE
from retape.engines.vlad.compiler.ir._check import check
from retape.engines.vlad.compiler.ir._dead_code import prune
from retape.engines.vlad.compiler.ir._ir import Lowered
from retape.engines.vlad.compiler.ir._liveness import Liveness
from retape.engines.vlad.compiler.lower._lower import Lowering
from retape.engines.vlad.compiler.typed._lower_typed import TypedLowering
from retape.engines.vlad.compiler.typed._typed_functions import (
    Typable,
    differentiates,
    seldom_boxed,
)
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.language._program import Program, deep_recursion


@dataclass(frozen=True, slots=True)
class ProgramText:
    """A program in C, with what the host needs to speak about it.

    Attributes:
        text: Its files, one after the other.
        places: Where the continuation of each frame's code stands.
        is_brief: Whether typed code that gives up has no boxed form in it.
    """

    text: str
    places: dict[int, Where]
    is_brief: bool

    @property
    def files(self) -> tuple[str, ...]:
        """What is compiled apart."""
        return tuple(self.text.split(NEXT_FILE))


@dataclass(frozen=True, eq=False)
class Compiled:
    """A program as C may be made of it.

    Attributes:
        module: The program in the intermediate form.
        typed: Those functions that are typed code, too, as such.
        live: What its functions and continuations need.
        lines: The C of typed code.
        given_up: The functions whose boxed form is needed where typed code gives up,
            and nowhere else.
    """

    module: Lowered
    typed: Lowered
    live: Liveness
    lines: Sequence[str]
    given_up: frozenset[int]

    @cached_property
    def whole(self) -> ProgramText:
        """All of the program in C."""
        return self._text(frozenset())

    @cached_property
    def brief(self) -> ProgramText:
        """The same without what is seldom needed.

        Of a loop with a branch and its gradient, the rest takes as long to compile.
        """
        return self._text(self.given_up) if self.given_up else self.whole

    def _text(self, given_up: frozenset[int]) -> ProgramText:
        with deep_recursion():
            emission = Emission(self.module, self.live, given_up)
        between = [] if given_up else [NEXT_FILE]
        return ProgramText(
            "\n".join([*emission.lines(), *between, *self.lines, ""]),
            emission.places,
            is_brief=bool(given_up),
        )


def compile_program(program: Program) -> Compiled:
    """All passes but the C compiler's; the form is checked after each."""
    with deep_recursion():
        module = intermediate(program)
        live = Liveness(module)
        typable = Typable(module, live)
        lines, typed = _typed(program, typable)
        is_brief = bool(typed.functions) and _is_closed(program)
        given_up = seldom_boxed(typable) if is_brief else frozenset[int]()
    return Compiled(module, typed, live, lines, given_up)


def _is_closed(program: Program) -> bool:
    """Whether a program's functions are only called, and call nothing outside."""
    return bool(program.roots) and not program.differentiated and not program.externals


def _typed(program: Program, typable: Typable) -> tuple[Sequence[str], Lowered]:
    """Typed code, if the program has derivatives or is called from outside."""
    reverse = differentiates(typable.module) or program.differentiated
    if not reverse and not program.roots:
        return NOTHING_TYPED, Lowered()
    lowering = TypedLowering(typable)
    lines = [*typed_text(lowering, reverse=reverse)]
    if (*lines,) == NOTHING_TYPED:
        return lines, Lowered()
    return lines, lowering.program.module


def intermediate(program: Program) -> Lowered:
    """The passes that end in the intermediate form."""
    with deep_recursion():
        module = check(Lowering(program).lower(program.expressions))
        return check(prune(module))

"""Operators on reals that follow one another, as one statement of C with two arms.

Nearly always all operands are doubles. One test at the beginning then does for all, and
the arm after it is straight code on doubles, without the branches and calls that make
the C compiler's work long. The other arm is straight, too: each operator is a call.
"""

from collections.abc import Sequence

from retape.engines.vlad.compiler.emit._operations import of_primals
from retape.engines.vlad.compiler.emit._output import Output
from retape.engines.vlad.compiler.ir._c_text import operator_text
from retape.engines.vlad.compiler.ir._ir import Atom, Let, Lit, Register, Term, Tick
from retape.engines.vlad.operators._row import Trait
from retape.engines.vlad.operators._table import NEGATE, OPERATORS

_RUNNABLE = {
    name: row
    for name, row in OPERATORS.items()
    if row.is_of_reals and not row.traits & (Trait.CHECK | Trait.ITEM)
}


def run_of(term: Term) -> tuple[list[Let], int, Term]:
    """The operators that begin at a term, the steps among them, and what comes then."""
    lets: list[Let] = []
    steps = waiting = 0
    truths: set[str] = set()
    rest = at = term
    while True:
        if isinstance(at, Tick):
            waiting += at.steps
        elif isinstance(at, Let) and _is_runnable(at, truths):
            lets.append(at)
            steps, waiting = steps + waiting, 0
            if _RUNNABLE[at.op].is_test:
                truths.add(at.var)
            rest = at.body
        else:
            return lets, steps, rest
        at = at.body


def _is_runnable(let: Let, truths: set[str]) -> bool:
    return let.op in _RUNNABLE and all(_may_be_real(a, truths) for a in let.args)


def _may_be_real(atom: Atom, truths: set[str]) -> bool:
    if isinstance(atom, Register):
        return atom not in truths
    return isinstance(atom, Lit) and type(atom.value) is float


def write_run(out: Output, lets: Sequence[Let]) -> None:
    """The statement of C for operators that follow one another."""
    inputs: dict[str, None] = {}
    bound: set[str] = set()
    for let in lets:
        inputs.update(
            (a, None) for a in let.args if isinstance(a, Register) and a not in bound
        )
        bound.add(let.var)
    tests = " & ".join(f"is_double({out.register(name)})" for name in inputs)
    if inputs:
        out.line(f"if (LIKELY({tests})) {{")
    for let in lets:
        if out.is_used(let.var):
            out.line(f"  {out.register(let.var)} = {_fast(out, let)};")
    if inputs:
        out.line("} else {")
        out.line("  G.hp = hp, G.k = k;")
        for let in lets:
            out.line("  " + _slow(out, let))
        out.line("  hp = G.hp;")
        out.line("}")


def _fast(out: Output, let: Let) -> str:
    a, *rest = [f"unbox({out.atom(arg)})" for arg in let.args]
    text = operator_text(let.op, a, rest[0] if rest else "")
    return f"boolean({text})" if _RUNNABLE[let.op].is_test else f"box({text})"


def _slow(out: Output, let: Let) -> str:
    """The call of an operator; whether operands are reals, the runtime asks."""
    row = _RUNNABLE[let.op]
    args = [out.atom(arg) for arg in let.args]
    to = out.register(let.var) if out.is_used(let.var) else "unused"
    if let.op == NEGATE:  # of a pair it is the difference
        return f"{to} = any_negation({args[0]}, {let.site});"
    if row.is_lifted:
        return f"{to} = any_{row.called}({', '.join(args)}, {let.site});"
    return of_primals(row, to, args, f'strip({{}}, "{row.shown}", {let.site})')

"""Operators on reals that follow one another, as one statement of C with two arms.

Nearly always all operands are doubles. One test at the beginning then does for all, and
the arm after it is straight code on doubles, without the branches and calls that make
the C compiler's work long. The other arm is straight, too: each operator is a call.
"""

from collections.abc import Iterator, Sequence

from retape.engines.vlad.compiler.emit._operations import ARITHMETIC, COMPARE, SIGN
from retape.engines.vlad.compiler.emit._output import Output
from retape.engines.vlad.compiler.ir._ir import Atom, Let, Lit, Term, Tick
from retape.engines.vlad.compiler.ir._operator_text import operator_text
from retape.engines.vlad.language._builtins import ELEMENTARY

_CALLED = ("atan", "expt", "remainder")
_ON_DOUBLES = {
    "min": "y < x ? {1} : {0}",
    "max": "y > x ? {1} : {0}",
    "modulo": "box(vlad_modulo(x, y))",
    "floor-divide": "box(python_floor_divide(x, y))",
    "floor": "box(floor(x))",
    "finite?": "boolean(isfinite(x) != 0)",
}
_NAMES = {"finite?": "float"}
_TRUTHS = frozenset((*COMPARE, *SIGN, "finite?"))
_RUNNABLE = frozenset(
    (*ARITHMETIC, *ELEMENTARY, *_CALLED, *_ON_DOUBLES, *_TRUTHS, "(-)")
)


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
            if at.op in _TRUTHS:
                truths.add(at.var)
            rest = at.body
        else:
            return lets, steps, rest
        at = at.body


def _is_runnable(let: Let, truths: set[str]) -> bool:
    return let.op in _RUNNABLE and all(_may_be_real(a, truths) for a in let.args)


def _may_be_real(atom: Atom, truths: set[str]) -> bool:
    if isinstance(atom, str):
        return atom not in truths
    return isinstance(atom, Lit) and type(atom.value) is float


def write_run(out: Output, lets: Sequence[Let]) -> None:
    """The statement of C for operators that follow one another."""
    inputs: dict[str, None] = {}
    bound: set[str] = set()
    for let in lets:
        inputs.update(
            (a, None) for a in let.args if isinstance(a, str) and a not in bound
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
    return f"boolean({text})" if let.op in _TRUTHS else f"box({text})"


def _slow(out: Output, let: Let) -> str:
    """The call of an operator; whether operands are reals, the runtime asks."""
    args = [out.atom(arg) for arg in let.args]
    to = out.register(let.var) if out.is_used(let.var) else "unused"
    if let.op in ARITHMETIC:
        return f"{to} = any_{ARITHMETIC[let.op]}({args[0]}, {args[1]}, {let.site});"
    if let.op in _CALLED:
        return f"{to} = any_{let.op}({args[0]}, {args[1]}, {let.site});"
    if let.op in ELEMENTARY:
        return f"{to} = any_{let.op}({args[0]}, {let.site});"
    if let.op == "(-)":
        return f"{to} = any_negation({args[0]}, {let.site});"
    value = _ON_DOUBLES.get(let.op, "").format(*args)
    if let.op in COMPARE:
        value = f"boolean(x {COMPARE[let.op]} y)"
    elif let.op in SIGN:
        value = f"boolean(x {SIGN[let.op]} 0.0)"
    return f"{{ {' '.join(_stripped(let, args))} {to} = {value}; }}"


def _stripped(let: Let, args: Sequence[str]) -> Iterator[str]:
    for letter, arg in zip("xy", args, strict=False):
        name = _NAMES.get(let.op, let.op)
        yield f'double {letter} = strip({arg}, "{name}", {let.site});'

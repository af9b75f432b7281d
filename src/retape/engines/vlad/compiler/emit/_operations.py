"""Each operator as a statement of C: the compiler's half of the table of operators.

Operators on reals that follow one another are one statement with two arms. Nearly
always all operands are doubles. One test at the beginning then does for all, and the
arm after it is straight code on doubles, without the branches and calls that make the
C compiler's work long. The other arm is straight, too: each operator is a call.
"""

from collections.abc import Sequence

from retape.engines.vlad.compiler.emit._frames import Output
from retape.engines.vlad.compiler.ir._c_text import operator_text, real_text
from retape.engines.vlad.compiler.ir._ir import Atom, Let, Lit, Register, Term, Tick
from retape.engines.vlad.language._each import Each, each_of, postfix
from retape.engines.vlad.language._externals import external_number
from retape.engines.vlad.operators._row import Operator, Trait
from retape.engines.vlad.operators._table import NEGATE, OPERATORS


def each_operation(each: Each, to: str, args: Sequence[str], site: int) -> str:
    """The statement that applies one."""
    codes: list[str] = []
    numbers: list[str] = []
    for word in postfix(each.item):
        if word.startswith("#"):
            codes.append(f"EACH_NUMBER + {len(numbers)}")
            numbers.append(real_text(float.fromhex(word[1:])))
        else:
            codes.append(word if word.isdigit() else f"EACH_{OPERATORS[word].called}")
    code = ", ".join([*codes, "EACH_END"])
    number = ", ".join(numbers or ["0.0"])
    return (
        f"{{ static const unsigned char words[] = {{{code}}}; "
        f"static const double numbers[] = {{{number}}}; "
        f'const Each e = {{words, "{each.kinds}", numbers, {int(each.is_sum)}}}; '
        f"const Val args[] = {{{', '.join(args)}}}; "
        f"RUNTIME({to}, each(&e, args, {len(args)}, {site})) }} WORKED"
    )


def operation(op: str, to: str, args: list[str], site: int) -> str:
    """The statement that applies an operator."""
    row = OPERATORS.get(op)
    if row is None:
        return _unlisted(op, to, args, site)
    if row.boxed:
        return row.boxed.format(*args, to=to, site=site)
    if row.is_lifted:
        text = operator_text(op, *(f"unbox({arg})" for arg in (*args, "")[:2]))
        operands = ", ".join(args)
        return f"LIFTED_{row.arity}({to}, {text}, {row.called}, {operands}, {site})"
    return of_primals(row, to, args, f'PRIMAL({{}}, "{row.shown}", {site})')


def of_primals(row: Operator, to: str, args: list[str], primal: str) -> str:
    """The statement for an operator that sees through derivatives.

    Args:
        row: The operator.
        to: The variable of C that gets its value.
        args: The operands in C.
        primal: How the double below an operand is found.
    """
    both = " ".join(
        f"double {letter} = {primal.format(arg)};"
        for letter, arg in zip("xy", args, strict=False)
    )
    return f"{{ {both} {to} = {_of_doubles(row, args)}; }}"


def _of_doubles(row: Operator, args: list[str]) -> str:
    """The value, from `x` and `y`."""
    if row.traits & Trait.CHOICE:
        # the operand with its derivatives, not the double below it
        test, _, _ = operator_text(row.name, "x", "y").partition("?")
        return f"{test}? {args[1]} : {args[0]}"
    text = operator_text(row.name, "x", "y")
    return f"boolean({text})" if row.is_test else f"box({text})"


def _unlisted(op: str, to: str, args: list[str], site: int) -> str:
    """The statement for an operator whose name says what it is."""
    each = each_of(op)
    if each is not None:
        return each_operation(each, to, args, site)
    number = external_number(op)
    if number is not None:
        operands = ", ".join((*args, "box(0.0)")[:2])
        return f"RUNTIME({to}, external({number}, {operands}, {site}))"
    kind, _, fault = op.partition(":")
    assert kind == "fault", f"no operation is called {op}"
    stop = f'fail(PYTHON_FAULT, "", {site}, box({fault}), NOTHING);'
    return f"G.k = k; {stop} {to} = NOTHING;"


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

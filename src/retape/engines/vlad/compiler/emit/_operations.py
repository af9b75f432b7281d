"""Each operator as a statement of C: the compiler's half of the table of operators."""

from collections.abc import Sequence

from retape.engines.vlad.compiler.ir._c_text import operator_text, real_text
from retape.engines.vlad.language._each import Each, each_of, postfix
from retape.engines.vlad.language._externals import external_number
from retape.engines.vlad.operators._row import Operator, Trait
from retape.engines.vlad.operators._table import OPERATORS


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

"""Each operator as a statement of C: the compiler's half of the table of primitives."""

from retape.engines.vlad.compiler.emit._each_operations import each_operation
from retape.engines.vlad.language._builtins import ELEMENTARY
from retape.engines.vlad.language._each import each_of
from retape.engines.vlad.language._externals import external_number

ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
COMPARE = {"=": "==", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
SIGN = {"zero?": "==", "positive?": ">", "negative?": "<"}
_CHOICES = {"min": "<", "max": ">"}
_TEST = {
    "null?": "{0} == EMPTY",
    "boolean?": "{0} == TRUE || {0} == FALSE",
    "real?": "is_real({0})",
    "pair?": "tag_of({0}) == TAG_PAIR",
    "vector?": "tag_of({0}) == TAG_VECTOR",
    "procedure?": "tag_of({0}) == TAG_CLOSURE",
}


def operation(op: str, to: str, args: list[str], site: int) -> str:
    """The statement that applies an operator."""
    if op in ARITHMETIC:
        return f"BINARY({to}, {op}, {ARITHMETIC[op]}, {args[0]}, {args[1]}, {site})"
    if op in ELEMENTARY:
        return f"UNARY({to}, {op}, {args[0]}, {site})"
    if op in COMPARE:
        test = COMPARE[op]
        return f'COMPARE({to}, {test}, "{op}", {args[0]}, {args[1]}, {site})'
    if op in SIGN:
        return f'COMPARE({to}, {SIGN[op]}, "{op}", {args[0]}, box(0.0), {site})'
    if op in _TEST:
        return f"{to} = boolean({_TEST[op].format(args[0])});"
    each = each_of(op)
    if each is not None:
        return each_operation(each, to, args, site)
    return _other(op, to, args, site)


def _other(op: str, to: str, args: list[str], site: int) -> str:
    def primal(i: int) -> str:
        return f'PRIMAL({args[i]}, "{op}", {site})'

    number = external_number(op)
    if number is not None:
        operands = ", ".join((*args, "box(0.0)")[:2])
        return f"RUNTIME({to}, external({number}, {operands}, {site}))"
    if op.startswith("fault:"):
        number = op.removeprefix("fault:")
        stop = f'fail(PYTHON_FAULT, "", {site}, box({number}), NOTHING);'
        return f"G.k = k; {stop} {to} = NOTHING;"
    match op:
        case "finite?":
            return f'{to} = boolean(isfinite(PRIMAL({args[0]}, "float", {site})));'
        case "check-integer":
            fault = f'G.k = k; fail(TOO_LARGE, "", {site}, {args[0]}, NOTHING);'
            size = f'fabs(PRIMAL({args[0]}, "int", {site}))'
            test = f"if (UNLIKELY(!({size} < 9007199254740992.0))) {{ {fault} }}"
            return f"{test} {to} = {args[0]};"
        case "floor-divide":
            both = f"double x = {primal(0)}; double y = {primal(1)};"
            return f"{{ {both} {to} = box(python_floor_divide(x, y)); }}"
        case "atan" | "expt" | "remainder":
            return f"CALLED({to}, {op}, {args[0]}, {args[1]}, {site})"
        case "min" | "max":
            both = f"double x = {primal(0)}; double y = {primal(1)};"
            test = f"y {_CHOICES[op]} x"
            return f"{{ {both} {to} = {test} ? {args[1]} : {args[0]}; }}"
        case "(-)":
            return f"NEGATE({to}, {args[0]}, {site})"
        case "modulo":
            both = f"double x = {primal(0)}; double y = {primal(1)};"
            return f"{{ {both} {to} = box(vlad_modulo(x, y)); }}"
        case "floor":
            return f"{to} = box(floor({primal(0)}));"
        case "real":
            fault = f'G.k = k; fail(NOT_REAL, "real", {site}, {args[0]}, NOTHING);'
            test = f"if (UNLIKELY(!is_real({args[0]}))) {{ {fault} }}"
            return f"{test} {to} = {args[0]};"
        case "vector-ref":
            return f"VECTOR_REF({to}, {args[0]}, {args[1]}, {site})"
        case "vector-length" | "vector-set":
            call = f"{op.replace('-', '_')}({', '.join(args)}, {site})"
            return f"RUNTIME({to}, {call})"
        case "make-vector" | "vector-dot" | "matrix-product":
            call = f"{op.replace('-', '_')}({', '.join(args)}, {site})"
            return f"RUNTIME({to}, {call}) WORKED"
        case "read-real":
            return f"G.k = k; {to} = read_real({site});"
        case "write-real":
            return f"G.k = k; {to} = write_real({args[0]}, {site});"
    raise AssertionError(f"no operation is called {op}")

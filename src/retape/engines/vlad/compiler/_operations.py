"""Each operator as a statement of C: the compiler's half of the table of primitives."""

_ARITHMETIC = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_COMPARE = {"=": "==", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
_SIGN = {"zero?": "==", "positive?": ">", "negative?": "<"}
_FUNCTIONS = ("sqrt", "exp", "log", "sin", "cos")
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
    if op in _ARITHMETIC:
        return f"BINARY({to}, {op}, {_ARITHMETIC[op]}, {args[0]}, {args[1]}, {site})"
    if op in _FUNCTIONS:
        return f"UNARY({to}, {op}, {args[0]}, {site})"
    if op in _COMPARE:
        test = _COMPARE[op]
        return f'COMPARE({to}, {test}, "{op}", {args[0]}, {args[1]}, {site})'
    if op in _SIGN:
        return f'COMPARE({to}, {_SIGN[op]}, "{op}", {args[0]}, box(0.0), {site})'
    if op in _TEST:
        return f"{to} = boolean({_TEST[op].format(args[0])});"
    return _other(op, to, args, site)


def _other(op: str, to: str, args: list[str], site: int) -> str:
    def primal(i: int) -> str:
        return f'PRIMAL({args[i]}, "{op}", {site})'

    match op:
        case "atan":
            return f"ATAN({to}, {args[0]}, {args[1]}, {site})"
        case "expt" | "modulo":
            function = "pow" if op == "expt" else "vlad_modulo"
            both = f"double x = {primal(0)}; double y = {primal(1)};"
            return f"{{ {both} {to} = box({function}(x, y)); }}"
        case "floor":
            return f"{to} = box(floor({primal(0)}));"
        case "real":
            fault = f'G.k = k; fail(NOT_REAL, "real", {site}, {args[0]}, NOTHING);'
            test = f"if (UNLIKELY(!is_real({args[0]}))) {{ {fault} }}"
            return f"{test} {to} = {args[0]};"
        case "vector-ref":
            return f"VECTOR_REF({to}, {args[0]}, {args[1]}, {site})"
        case "make-vector" | "vector-length" | "vector-set":
            call = f"{op.replace('-', '_')}({', '.join(args)}, {site})"
            return f"RUNTIME({to}, {call})"
        case "read-real":
            return f"G.k = k; {to} = read_real({site});"
        case "write-real":
            return f"G.k = k; {to} = write_real({args[0]}, {site});"
    raise AssertionError(f"no operation is called {op}")

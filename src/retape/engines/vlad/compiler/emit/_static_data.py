"""Constants of a program as C: literals, quoted data, closures without variables."""

from collections.abc import Iterator

from retape.engines.vlad.compiler.ir._ir import Lowered
from retape.engines.vlad.language._core import Constant


def constant_text(value: Constant) -> str:
    """A real, a boolean or `()` in C."""
    if type(value) is tuple:
        return "EMPTY"
    if type(value) is bool:
        return "TRUE" if value else "FALSE"
    assert type(value) is float
    if value != value:
        return "box(NAN)"
    if value in (float("inf"), float("-inf")):
        return "box(HUGE_VAL)" if value > 0 else "box(-HUGE_VAL)"
    return f"box({value.hex()})"


def static_data(module: Lowered) -> Iterator[str]:
    """Static objects, and the function that makes values of them at the start."""
    pairs = [cell for value in module.quoted for cell in _cells(value)]
    functions = max(module.functions, default=0) + 1
    yield f"Object *static_cells[{max(1, len(pairs))}];"
    yield f"const size_t cells = {len(pairs)}, closures = {functions};"
    if pairs:
        yield f"static Val quoted[{len(module.quoted)}];"
    yield f"Val closure[{functions}];"
    yield from _externals(module)
    yield ""
    yield "void make_static(void) {"
    yield f"  for (int i = 0; i < {functions}; i++) {{"
    yield "    Object *o = take(sizeof(Object));"
    yield "    o->header = HEADER(i, 0) | IS_STATIC;"
    yield "    closure[i] = tagged(TAG_CLOSURE, o);"
    yield "  }"
    if pairs:
        yield f"  for (int i = 0; i < {len(pairs)}; i++) {{"
        yield "    Object *o = take(sizeof(Object) + 2 * sizeof(Val));"
        yield "    o->header = HEADER(i, 2) | IS_STATIC;"
        yield "    static_cells[i] = o;"
        yield "  }"
    yield from _fill(module)
    yield "}"


def _externals(module: Lowered) -> Iterator[str]:
    """The table of external functions."""
    yield "static const External externals[] = {"
    for each in module.externals:
        partials = ", ".join(str(number) for number in each.partials)
        name = "".join(f"\\{byte:03o}" for byte in each.name.encode())
        yield f'  {{"{name}", {each.operands}, {{{partials}}}}},'
    yield '  {"", 0, {0}}'
    yield "};"
    yield "const External *external_of(int32_t i) { return &externals[i]; }"


def _cells(value: Constant) -> list[tuple[Constant, Constant]]:
    """The pairs of a quoted datum, each before those inside it."""
    cells: list[tuple[Constant, Constant]] = []
    stack: list[Constant] = [value]
    while stack:
        top = stack.pop()
        if type(top) is tuple and top:
            cells.append(top)
            stack.extend((top[1], top[0]))
    return cells


def _fill(module: Lowered) -> Iterator[str]:
    base = 0
    for index, value in enumerate(module.quoted):
        cells = _cells(value)
        number = {id(cell): base + i for i, cell in enumerate(cells)}
        yield f"  quoted[{index}] = tagged(TAG_PAIR, static_cells[{base}]);"
        for cell in cells:
            for i, part in enumerate(cell):
                text = (
                    f"tagged(TAG_PAIR, static_cells[{number[id(part)]}])"
                    if type(part) is tuple and part
                    else constant_text(part)
                )
                yield f"  static_cells[{number[id(cell)]}]->field[{i}] = {text};"
        base += len(cells)

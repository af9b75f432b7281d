"""Operators on rows, and on lists, in C.

Those on each item of whole rows are functions, in loops that the C compiler vectorises.

    each_0(r0, d1, r2)           the row of an operator, or NULL where it is a fault
    each_0_to_2(made, ...)       adds to the adjoints of a row
    each_0_by_1(made, ...)       what a number's adjoint gets

A loop writes one array, which no other operand of it is. A number's adjoint is four
sums, of each fourth item, so that one addition need not wait for another.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from retape.engines.vlad.compiler.ir._ir import Atom, Let, Register
from retape.engines.vlad.compiler.typed._row_operations import (
    CELL,
    ItemCode,
    each_takes,
)
from retape.engines.vlad.language._each import Each, ItemOf, each_of
from retape.engines.vlad.operators._partials import filled
from retape.engines.vlad.operators._table import (
    CAR,
    CDR,
    IS_NULL,
    IS_PAIR,
    OPERATORS,
)

if TYPE_CHECKING:
    from retape.engines.vlad.compiler.adjoint._emit_frames import FrameEmission


@dataclass(slots=True)
class EachFunctions:
    """The functions that a program's C calls, each written once.

    Attributes:
        forward: Those that run operators.
        backward: Those of their adjoints.
    """

    forward: dict[str, list[str]] = field(default_factory=dict)
    backward: dict[str, list[str]] = field(default_factory=dict)
    _numbers: dict[str, int] = field(default_factory=dict)

    def of(self, operator: str) -> str:
        """The name of what runs an operator."""
        name = self._name(operator)
        if name not in self.forward:
            self.forward[name] = [*_forward(name, _each(operator))]
        return name

    def back(self, operator: str, operand: int) -> str:
        """The name of what propagates its adjoint to an operand's."""
        each = _each(operator)
        way = "to" if each.kinds[operand] == "v" else "by"
        name = f"{self._name(operator)}_{way}_{operand}"
        if name not in self.backward:
            self.backward[name] = [*_backward(name, each, operand)]
        return name

    def forward_text(self) -> Iterator[str]:
        """What runs operators, in C."""
        for lines in self.forward.values():
            yield from lines

    def backward_text(self) -> Iterator[str]:
        """What propagates their adjoints."""
        for lines in self.backward.values():
            yield from lines

    def _name(self, operator: str) -> str:
        return f"each_{self._numbers.setdefault(operator, len(self._numbers))}"


def _each(operator: str) -> Each:
    each = each_of(operator)
    assert each is not None, "an operator on whole rows"
    return each


def _parameters(each: Each, row: str) -> str:
    """The parameters of operands: rows, or traces of them."""
    types = {"v": f"{row}row", "d": "double d"}
    return ", ".join(f"{types[kind]}{i}" for i, kind in enumerate(each.kinds))


def _forward(name: str, each: Each) -> Iterator[str]:
    code = ItemCode(each)
    value = code.value(each.item)
    gives = "double " if each.is_sum else "Row *"
    yield f"VECTORISED static {gives}{name}({_parameters(each, 'const Row *')}) {{"
    first = f"row{each.vectors[0]}"
    yield f"  const size_t n = {first}->length;"
    for i in each.vectors:
        if i in code.read:
            yield f"  const double *r{i} = row{i}->value;"
    body = " ".join(code.lines)
    if each.is_sum:
        yield "  double sum = 0.0;"
        yield "  G.work += (int64_t)n;"
        yield f"  for (size_t i = 0; i < n; i++) {{ {body} sum += {value}; }}"
        yield from ("  return sum;", "}")
        return
    yield "  Row *made = made_row(n);"
    yield "  double *restrict to = made->value;"
    fault = _fault(each, code)
    if fault:
        yield "  uint64_t faults = 0;"
        body += f" faults |= {fault};"
    yield f"  for (size_t i = 0; i < n; i++) {{ {body} to[i] = {value}; }}"
    yield "  return faults ? NULL : made;" if fault else "  return made;"
    yield "}"


def _fault(each: Each, code: ItemCode) -> str:
    """Whether an item is a fault of Python's, after its value has been computed."""
    if not isinstance(each.item, ItemOf):
        return ""
    a, b = (code.value(arg) for arg in (each.item.args[0], each.item.args[-1]))
    fault = OPERATORS[each.item.op].fault
    if fault is None:
        return ""
    return filled(fault.c, {"a": a, "b": b, "y": code.value(each.item)})


def _backward(name: str, each: Each, operand: int) -> Iterator[str]:
    code = ItemCode(each)
    found = code.adjoints(operand)
    is_row = each.kinds[operand] == "v"
    given = "double g" if each.is_sum else "uint64_t made"
    gives = "void" if is_row else "double"
    parameters = _parameters(each, "uint64_t ")
    yield f"VECTORISED static {gives} {name}({given}, {parameters}) {{"
    yield f"  const size_t n = row_length(row{each.vectors[0]});"
    for i in each.vectors:
        if i in code.read:
            yield f"  const double *r{i} = values_of(row{i});"
    lines = code.lines
    if not each.is_sum:
        yield "  const double *made_g = adjoint_of(made);"
        lines = ["const double g = made_g[i];", *lines]
    if code.reads_result:
        yield "  const double *made_y = values_of(made);"
        lines = ["const double y = made_y[i];", *lines]
    body = " ".join(lines)
    if is_row:
        yield f"  double *restrict to = adjoint_of(row{operand});"
        total = " + ".join(["to[i]", *found])
        yield f"  for (size_t i = 0; i < n; i++) {{ {body} to[i] = {total}; }}"
        yield "}"
        return
    total = " + ".join(found) or "0.0"
    yield "  double s[4] = {0.0, 0.0, 0.0, 0.0};"
    yield "  size_t i = 0;"
    yield "  for (; i + 4 <= n;) {"
    for lane in range(4):
        yield f"    {{ {body} s[{lane}] += {total}; i++; }}"
    yield "  }"
    yield f"  for (; i < n; i++) {{ {body} s[0] += {total}; }}"
    yield from ("  return (s[0] + s[2]) + (s[1] + s[3]);", "}")


def record_each(emission: "FrameEmission", term: Let) -> None:
    """An operator on whole rows, run."""
    each = _each(term.op)
    operands = term.args
    rows = [arg for arg in operands if isinstance(arg, Register) and arg.kind == "v"]
    for row in dict.fromkeys(rows):
        version = emission.version(row)
        emission.line(f"ROW_CURRENT({emission.slot(row)}, {version})")
    first = emission.slot(rows[0])
    for row in dict.fromkeys(rows[1:]):
        other = emission.slot(row)
        emission.line(
            f"if (UNLIKELY({first}->length != {other}->length)) goto GIVE_UP;"
        )
    made = emission.slot(term.var)
    args = ", ".join(emission.atom(arg) for arg in operands)
    emission.line(f"{made} = {emission.names.each.of(term.op)}({args});")
    if not each.is_sum:
        emission.line(f"if (UNLIKELY(!{made})) goto GIVE_UP;")
        emission.line(f"{emission.version(term.var)} = 0;")
    emission.line("WORKED")
    if emission.taped:
        takes = each_takes(term.op)
        kept = [operands[i] for i in sorted(takes.operands) if each.kinds[i] == "v"]
        kept += [term.var] if takes.result else []
        for row in dict.fromkeys(kept):
            assert isinstance(row, Register)
            emission.line(f"KEPT({emission.slot(row)})")


def reverse_each(
    functions: EachFunctions, step: Let, made: str, texts: list[str]
) -> Iterator[tuple[Atom | None, str]]:
    """What propagates adjoints: a statement, or what a number's adjoint gets.

    Args:
        functions: The functions of C.
        step: The operator, applied.
        made: Its row, or the adjoint of its number.
        texts: The operands.
    """
    each, takes = _each(step.op), each_takes(step.op)
    given = [
        text if each.kinds[i] == "v" or i in takes.operands else "0.0"
        for i, text in enumerate(texts)
    ]
    args = ", ".join([made, *given])
    for i, arg in enumerate(step.args):
        call = f"{functions.back(step.op, i)}({args})"
        if each.kinds[i] == "v":
            yield None, f"{call};"
        elif isinstance(arg, Register):
            yield arg, call


# products, rows that a reverse takes as they were, and lists


def record_dot(emission: "FrameEmission", term: Let) -> None:
    """The sum of the products of two rows' elements."""
    a, b = (arg for arg in term.args if isinstance(arg, Register))
    x, y = emission.slot(a), emission.slot(b)
    versions = emission.version(a), emission.version(b)
    emission.line(f"ROWS_ALIKE({x}, {versions[0]}, {y}, {versions[1]})")
    emission.line(f"{emission.slot(term.var)} = row_dot({x}, {y}); WORKED")
    _keep(emission, a, b)


def record_product(emission: "FrameEmission", term: Let) -> None:
    """A row that is the product of two matrices."""
    rows, columns, a, b = term.args
    assert isinstance(a, Register) and isinstance(b, Register)
    x, y, c = emission.slot(a), emission.slot(b), emission.slot(term.var)
    emission.line(f"ROW_CURRENT({x}, {emission.version(a)})")
    emission.line(f"ROW_CURRENT({y}, {emission.version(b)})")
    shape = f"{emission.atom(rows)}, {emission.atom(columns)}"
    emission.line(f"{c} = row_product({shape}, {x}, {y});")
    emission.line(f"if (UNLIKELY(!{c})) goto GIVE_UP;")
    emission.line(f"{emission.version(term.var)} = 0; WORKED")
    _keep(emission, a, b)


def _keep(emission: "FrameEmission", *rows: Register) -> None:
    if emission.taped:
        for row in dict.fromkeys(rows):
            emission.line(f"KEPT({emission.slot(row)})")


def own_set(made: str, row: str, place: str, value: str) -> str:
    """An assignment at a place that was looked at, to a row of its own if need be."""
    return (
        f"{made} = {row}->is_kept ? own_row({row}) : {row}; "
        f"{made}->value[{place}] = {value};"
    )


def _cell(emission: "FrameEmission", term: Let) -> None:
    value, rest = (emission.atom(arg) for arg in term.args)
    emission.line(f"CELL({emission.slot(term.var)}, {value}, {rest})")


def _car(emission: "FrameEmission", term: Let) -> None:
    """The first item; whoever takes what follows has taken it before."""
    cell = emission.atom(term.args[0])
    emission.line(f"if (UNLIKELY(!{cell})) goto GIVE_UP;")
    emission.line(f"{emission.slot(term.var)} = {cell}->value;")


def _cdr(emission: "FrameEmission", term: Let) -> None:
    cell = emission.atom(term.args[0])
    emission.line(f"{emission.slot(term.var)} = {cell}->next;")


def _is_empty(emission: "FrameEmission", term: Let) -> None:
    emission.line(f"{emission.slot(term.var)} = !{emission.atom(term.args[0])};")


def _is_cell(emission: "FrameEmission", term: Let) -> None:
    emission.line(f"{emission.slot(term.var)} = !!{emission.atom(term.args[0])};")


LISTS: "dict[str, Callable[[FrameEmission, Let], None]]" = {
    CELL: _cell,
    CAR: _car,
    CDR: _cdr,
    IS_NULL: _is_empty,
    IS_PAIR: _is_cell,
}

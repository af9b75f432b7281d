"""Pass: typed code to the C that runs it, and records what its reverse takes."""

from collections.abc import Callable, Iterator

from retape.engines.vlad.compiler.adjoint._emit_frames import (
    ON_TAPE,
    TYPES,
    FrameEmission,
)
from retape.engines.vlad.compiler.adjoint._emit_rows import (
    LISTS,
    own_set,
    record_dot,
    record_each,
    record_product,
)
from retape.engines.vlad.compiler.adjoint._names import TapeNames
from retape.engines.vlad.compiler.adjoint._tables import type_of_value
from retape.engines.vlad.compiler.ir._c_text import operator_text
from retape.engines.vlad.compiler.ir._ir import (
    Atom,
    Branch,
    Call,
    Cont,
    Jump,
    Let,
    Register,
    Return,
    Stop,
    Term,
    Tick,
)
from retape.engines.vlad.compiler.typed._form import TypedFunction, TypedProgram
from retape.engines.vlad.compiler.typed._recorded import Recorded
from retape.engines.vlad.compiler.typed._row_operations import is_each
from retape.engines.vlad.compiler.typed._useful import applied_again
from retape.engines.vlad.compiler.typed._ways import Way, Ways
from retape.engines.vlad.compiler.typed._whole import TESTS_OF_TWO
from retape.engines.vlad.operators._table import (
    ADD,
    CHECK_INTEGER,
    MAKE_VECTOR,
    MATRIX_PRODUCT,
    MULTIPLY,
    OWN_SET,
    SUBTRACT,
    VECTOR_DOT,
    VECTOR_LENGTH,
    VECTOR_REF,
    VECTOR_SET,
)


class RecordEmission(FrameEmission):
    """The text of a part of `typed_record`.

    Args:
        program: The typed functions.
        ways: Their ways.
        tape: What each way records, by its end.
        names: Shared with the reverse.
        part: The functions whose text this is.
        taped: Whether there is a reverse that will take what is recorded.
    """

    def __init__(
        self,
        program: TypedProgram,
        ways: Ways,
        tape: dict[int, Recorded],
        names: TapeNames,
        part: TypedProgram,
        *,
        taped: bool,
    ) -> None:
        super().__init__(program, ways, names, part, taped=taped)
        self.tape = tape
        self.again = applied_again(self.part)
        self.loops = {
            way.loop.index: way
            for way in ways.ways.values()
            if taped and way.loop is not None and way.loop.index in self.part.functions
        }

    def blocks(self) -> list[str]:
        """The text of the part's functions."""
        for function in self.part.functions.values():
            self._function(function)
        lines, self.lines = self.lines, []
        return lines

    def room(self) -> Iterator[str]:
        """Variables that tell where the tape's piece ends."""
        most = 16 + 2 * max(
            (len(r.kept) + len(r.fixed) for r in self.tape.values()), default=0
        )
        yield f"  const size_t most = {most};"
        for way in self.loops.values():
            yield f"  uint64_t {_run(way)} = 0;"
        yield "  const Word *end = T.piece->word + PIECE_WORDS - most;"
        yield "  (void)most, (void)end;"

    def variables(self) -> Iterator[str]:
        """The declarations of variables, and of what a value is in after a call."""
        for slot in self.slots:
            yield from self.declared(slot)
        for name in self.returned:
            star = "Row *" if name.startswith("qv") else TYPES.get(name[1], "uint64_t")
            yield f"  {star} {name} = 0; (void){name};"

    def remembered_declared(self) -> Iterator[str]:
        """The declarations of operands and values that are likely to come again."""
        for slot in self.slots:
            if slot in self.again:
                names = self.names.remembered(slot)
                yield f"  double {names[0]} = 0.0, {names[1]} = 0.0;"

    # blocks

    def _function(self, function: TypedFunction) -> None:
        code = function.resume.code
        self.gives = self.given[type_of_value(function.result)]
        self.lines.append(f"F{function.index}:")
        loop = self.loops.get(function.index)
        if loop is not None:
            self.line("if (UNLIKELY(tp >= end)) {")
            self._run_ends(loop)
            self.line("ROOM }")
        else:
            self._room()
        self.line(f"if (UNLIKELY(fuel < {function.cost})) {{")
        if loop is not None:
            self._run_ends(loop)
        self.push(function.resume.words, code)
        self.record(self.names.number(("stop", code)))
        self.line("goto STOP; }")
        self._term(function.body)

    def _room(self) -> None:
        if self.taped:
            self.line("ROOM")

    def _term(self, term: Term) -> None:
        later: list[Cont] = []
        while True:
            match term:
                case Let():
                    self._do(term)
                case Tick():
                    self.line(f"fuel -= {term.steps};")
                case Cont():
                    later.append(term)
                case _:
                    break
            term = term.body
        self._end(term)
        for join in reversed(later):
            self.lines.append(
                f"J{self.join_number(join.name)}: __attribute__((unused));"
            )
            if join.name in self.ways.blocks:
                self._room()
            self._term(join.cont)

    def _end(self, term: Term) -> None:
        match term:
            case Branch():
                self.line(f"if ({self.atom(term.test)}) {{")
                self._term(term.then)
                self.line("} else {")
                self._term(term.other)
                self.line("}")
            case Stop():
                self.line("goto GIVE_UP;")
            case Jump():
                self._go(term)
            case Return():
                self._tape(term)
                registers = self.registers(term.args)
                self.line(f"T.gives = {self.gives};")
                for (name, _), (text, _) in zip(
                    registers, self.words(term.args), strict=True
                ):
                    self.line(f"{name} = {text};")
                self.line("goto POP;")
            case Call():
                self._tape(term)
                if term.cont is not None:
                    frame = self.program.pushed(term.cont)
                    self.push(frame.words, frame.code)
                called = self.program.functions[term.function]
                self._move(called.params, term.args)
                if term.function in self.part.functions:
                    self.line(f"goto F{term.function};")
                else:
                    self.line(f"next = DO_CALL + {term.function}; goto LEAVE;")
            case _:
                raise AssertionError("an end of a block")

    def _go(self, term: Jump) -> None:
        if term.cont in self.ways.blocks:
            self._tape(term)
        join = self.ways.joins[term.cont]
        self._move(join.params, term.args)
        self.line(f"goto J{self.join_number(term.cont)};")

    def _move(self, params: tuple[Register, ...], args: tuple[Atom, ...]) -> None:
        """Assign variables at once: one may be the value of another."""
        moves = [(p, a) for p, a in zip(params, args, strict=True) if p != a]
        self.line("{")
        for i, (param, arg) in enumerate(moves):
            value = self.integer(arg) if param in self.names.integers else None
            self.line(f"{self.type_of(param)} x{i} = {value or self.atom(arg)};")
            if isinstance(arg, Register) and arg.kind == "v":
                self.line(f"uint64_t w{i} = {self.version(arg)};")
        for i, (param, _) in enumerate(moves):
            self.line(f"{self.slot(param)} = x{i};")
            if param.kind == "v":
                self.line(f"{self.version(param)} = w{i};")
        self.line("}")

    def _tape(self, end: Jump | Return | Call) -> None:
        if not self.taped:
            return
        way = self.ways.ways[id(end)]
        if way.leaves is not None:
            self._run_ends(self.loops[way.leaves.index])
        kept = self._keep(way, self.tape[id(end)].kept)
        if way.loop is not None:
            self.line(f"tp += {kept}; ++{_run(way)};")
            return
        self.line(f"tp[{kept}].u = {self.names.number(('way', way.number))};")
        self.line(f"tp += {kept + 1};")

    def _run_ends(self, loop: Way) -> None:
        """Record how many times a loop's way was taken in a row, if it was."""
        self.line(f"if ({_run(loop)}) {{")
        fixed = self._keep(loop, self.tape[id(loop.end)].fixed)
        self.line(f"tp[{fixed}].u = {_run(loop)}; {_run(loop)} = 0;")
        self.line(f"tp[{fixed + 1}].u = {self.names.number(('way', loop.number))};")
        self.line(f"tp += {fixed + 2}; }}")

    def _keep(self, way: Way, kept: tuple[Register, ...]) -> int:
        for i, slot in enumerate(kept):
            held = self.slot(slot) + ("->trace" if slot.kind == "v" else "")
            self.line(f"tp[{i}].{ON_TAPE[slot.kind]} = {held};")
        return len(kept)

    # operators

    def _do(self, term: Let) -> None:
        if term.op in _ON_OBJECTS:
            _ON_OBJECTS[term.op](self, term)
            return
        if is_each(term.op):
            record_each(self, term)
            return
        var = self.slot(term.var)
        a, *rest = self._operands(term)
        b = rest[0] if rest else ""
        if term.var in self.names.integers:
            self._integer(term, operator_text(term.op, a, b))
            return
        if term.var in self.again:
            of, made = self.names.remembered(term.var)
            new = f"{of} = {a}; {made} = {operator_text(term.op, of, b)};"
            self.line(f"if (UNLIKELY(!({a} == {of}) || {of} == 0.0)) {{ {new} }}")
            self.line(f"{var} = {made};")
            return
        self.line(f"{var} = {operator_text(term.op, a, b)};")
        if term.op == CHECK_INTEGER:
            bound = "9007199254740992.0"
            self.line(f"if (UNLIKELY(!(fabs({a}) < {bound}))) goto GIVE_UP;")

    def _operands(self, term: Let) -> list[str]:
        """The operands; as integers if all are, and the operator may have them so."""
        if term.var in self.names.integers or term.op in TESTS_OF_TWO:
            whole = [self.integer(arg) for arg in term.args]
            if not any(text is None for text in whole):
                return [str(text) for text in whole]
        return [self.atom(arg) for arg in term.args]

    def _integer(self, term: Let, text: str) -> None:
        """Bind an integer; what is not below 2**53 is given up."""
        var = self.slot(term.var)
        given = [self.integer(arg) is not None for arg in term.args]
        if not all(given):
            self.line(f"{{ const double x = {text}; WHOLE({var}, x) }}")
        elif term.op == MULTIPLY:
            a, b = self._operands(term)
            self.line(f"PRODUCT({var}, {a}, {b})")
        else:
            self.line(f"{var} = {text};")
            if term.op in (ADD, SUBTRACT):
                self.line(f"SMALL({var})")

    def _place(self, row: Register, at: Atom) -> None:
        """Look where an item is."""
        v, n, i = self.slot(row), self.version(row), self.integer(at)
        if i is None and at in self.names.whole:
            i = f"(int64_t){self.atom(at)}"
        if i is None:
            self.line(f"{{ ROW_PLACE({v}, {n}, {self.atom(at)})")
        else:
            self.line(f"{{ ROW_WHOLE_PLACE({v}, {n}, {i})")

    def _ref(self, term: Let) -> None:
        row, at = term.args
        assert isinstance(row, Register)
        v = self.slot(row)
        self._place(row, at)
        self.line(f"{self.slot(term.var)} = {v}->value[place]; }}")

    def _set(self, term: Let) -> None:
        row, at, value = term.args
        assert isinstance(row, Register)
        v = self.slot(row)
        self._place(row, at)
        self.line(f"{v}->value[place] = {self.atom(value)}; }}")
        self.line(f"{self.slot(term.var)} = {v};")
        self.line(f"{self.version(term.var)} = ++{v}->version;")

    def _own_set(self, term: Let) -> None:
        row, at, value = term.args
        assert isinstance(row, Register)
        self._place(row, at)
        made, text = self.slot(term.var), self.atom(value)
        self.line(own_set(made, self.slot(row), "place", text) + " }")
        self.line(f"{self.version(term.var)} = ++{made}->version;")

    def _make(self, term: Let) -> None:
        n, value = (self.atom(arg) for arg in term.args)
        self.line(f"ROW_LENGTH({n})")
        var = self.slot(term.var)
        self.line(f"{var} = full_row((size_t){n}, {value});")
        self.line(f"{self.version(term.var)} = 0; WORKED")

    def _length(self, term: Let) -> None:
        (row,) = term.args
        self.line(f"{self.slot(term.var)} = {self.atom(row)}->length;")


def _run(loop: Way) -> str:
    """How many times a loop's way was taken in a row."""
    return f"run{loop.number}"


_ON_OBJECTS: dict[str, Callable[[RecordEmission, Let], None]] = {
    VECTOR_REF: RecordEmission._ref,
    VECTOR_SET: RecordEmission._set,
    OWN_SET: RecordEmission._own_set,
    VECTOR_DOT: record_dot,
    MATRIX_PRODUCT: record_product,
    MAKE_VECTOR: RecordEmission._make,
    VECTOR_LENGTH: RecordEmission._length,
    **LISTS,
}

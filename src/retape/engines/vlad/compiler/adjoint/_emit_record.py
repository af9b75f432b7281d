"""Pass: typed code to the C that runs it, and records what its reverse takes."""

from collections.abc import Callable, Iterator

from retape.engines.vlad.compiler.adjoint._names import (
    ENTER_BY,
    RETURN_TO,
    TapeNames,
    words_in,
)
from retape.engines.vlad.compiler.typed._form import (
    Do,
    Frame,
    Give,
    Go,
    IfTyped,
    Invoke,
    Join,
    Register,
    Stop,
    Ticks,
    TypedAtom,
    TypedFunction,
    TypedProgram,
    TypedTerm,
    letter_of,
    parts_of,
)
from retape.engines.vlad.compiler.typed._recorded import Recorded
from retape.engines.vlad.compiler.typed._ways import Ways
from retape.engines.vlad.language._builtins import ELEMENTARY

_TYPES = {"d": "double", "b": "int", "v": "Row *", "m": "uint64_t"}
_FIELDS = {"d": "d", "b": "u", "v": "row", "m": "u"}
_COMPARISONS = {"=": "==", "<": "<", ">": ">", "<=": "<=", ">=": ">="}
_AGAINST_ZERO = {"zero?": "==", "positive?": ">", "negative?": "<"}
_C_FUNCTIONS = {
    "atan": "double_atan",
    "expt": "double_expt",
    "remainder": "double_remainder",
    "modulo": "vlad_modulo",
    "floor-divide": "python_floor_divide",
}


class RecordEmission:
    """The text of `typed_record`.

    Args:
        program: The typed functions.
        ways: Their ways.
        tape: What each way records, by its end.
        names: Shared with the reverse.
    """

    def __init__(
        self,
        program: TypedProgram,
        ways: Ways,
        tape: dict[int, Recorded],
        names: TapeNames,
    ) -> None:
        self.program, self.ways, self.tape, self.names = program, ways, tape, names
        self.lines: list[str] = []
        self.slots: dict[Register, None] = {}
        self.returned: dict[str, None] = {}

    def text(self) -> Iterator[str]:
        """The lines of the function."""
        for function in self.program.functions.values():
            self._function(function)
        body, self.lines = self.lines, []
        self._entries()
        most = 8 + max((len(r.kept) for r in self.tape.values()), default=0)
        yield "static int typed_record(int64_t fuel) {"
        yield "  Word *sp = T.at, *tp = T.tape, *top = T.top;"
        yield f"  const size_t most = {most};"
        yield "  const Word *end = T.piece->word + PIECE_WORDS - most;"
        yield "  int is_real = 0;"
        for slot in self.slots:
            yield from self._declared(slot)
        for name in self.returned:
            star = "Row *" if name.startswith("qv") else _TYPES.get(name[1], "uint64_t")
            yield f"  {star} {name} = 0; (void){name};"
        yield "POP:"
        yield "  ROOM"
        yield "  switch (sp[-1].u) {"
        yield from self.lines
        yield "  default: goto GIVE_UP;"
        yield "  }"
        yield from body
        yield "STOP:"
        yield "  T.at = sp;"
        yield "  T.tape = tp;"
        yield "  T.fuel = fuel;"
        yield "  return STOPPED;"
        yield "GIVE_UP:"
        yield "  return GAVE_UP;"
        yield "}"

    def _declared(self, slot: Register) -> Iterator[str]:
        name = self.names.slot(slot)
        yield f"  {_TYPES[slot.kind]} {name} = 0; (void){name};"
        if slot.kind == "v":
            version = self.names.version(slot)
            yield f"  uint64_t {version} = 0; (void){version};"

    def _line(self, text: str) -> None:
        self.lines.append("  " + text)

    def _slot(self, slot: Register) -> str:
        self.slots[slot] = None
        return self.names.slot(slot)

    def _version(self, slot: Register) -> str:
        self.slots[slot] = None
        return self.names.version(slot)

    def _atom(self, atom: TypedAtom) -> str:
        return self._slot(atom) if isinstance(atom, Register) else self.names.atom(atom)

    def _record(self, number: int) -> None:
        self._line(f"tp++->u = {number};")

    # frames

    def _push(self, words: tuple[TypedAtom, ...], code: int) -> None:
        count = words_in(words) + 1
        self._line(f"STACK({count})")
        for text, field in self._words(words):
            self._line(f"sp++->{field} = {text};")
        self._line(f"sp++->u = {code};")

    def _words(self, words: tuple[TypedAtom, ...]) -> Iterator[tuple[str, str]]:
        for word in words:
            kind = letter_of(word)
            text = self._atom(word)
            yield (f"(uint64_t){text}" if kind == "b" else text), _FIELDS[kind]
            if isinstance(word, Register) and kind == "v":
                yield self._version(word), "u"

    def _load(self, words: tuple[TypedAtom, ...]) -> None:
        """Take a frame from the stack, into the variables that it was pushed from."""
        self._line(f"sp -= {words_in(words) + 1};")
        at = 0
        for word in words:
            if isinstance(word, Register):
                cast = "(int)" if word.kind == "b" else ""
                self._line(f"{self._slot(word)} = {cast}sp[{at}].{_FIELDS[word.kind]};")
                if word.kind == "v":
                    self._line(f"{self._version(word)} = sp[{at + 1}].u;")
            at += words_in((word,))

    def _entries(self) -> None:
        """The ways in from the stack."""
        self._line("case HALT: {")
        self.returned["qd0"] = None
        self._line("  if (!is_real) goto GIVE_UP;")
        self._line("  T.at = sp; T.tape = tp; T.fuel = fuel; T.result = qd0;")
        self._line("  return ENDED;")
        self._line("}")
        for function in self.program.functions.values():
            self._entry(function, function.resume, function.resume.code)
            if function.enter is not None:
                code = ENTER_BY | function.enter.code
                self._entry(function, function.enter, code)
        for code, join in self.program.returns.items():
            self._return(code, join)

    def _entry(self, function: TypedFunction, frame: Frame, code: int) -> None:
        self._line(f"case {code}:")
        self._load(frame.words)
        self._record(self.names.number(("pop", code)))
        self._line(f"goto F{function.index};")

    def _return(self, code: int, join: Join) -> None:
        assert join.frame is not None
        params = tuple(parts_of(join.params))
        registers = self._registers(params)
        waiting = RETURN_TO | code
        count = words_in(params) + 1
        self._line(f"case {code}:")
        self._line(f"if (UNLIKELY(fuel < {join.cost})) {{")
        self._line(f"STACK({count})")
        for name, field in registers:
            self._line(f"sp++->{field} = {_to_word(name)};")
        self._line(f"sp++->u = {waiting};")
        self._record(self.names.number(("stop", waiting)))
        self._line("goto STOP; }")
        self._load(join.frame.words)
        at = iter(registers)
        for param in params:
            assert isinstance(param, Register)
            self._line(f"{self._slot(param)} = {next(at)[0]};")
            if param.kind == "v":
                self._line(f"{self._version(param)} = {next(at)[0]};")
        self._record(self.names.number(("pop", code)))
        self._line(f"goto J{self._join_number(join.name)};")
        self._line(f"case {waiting}:")
        self._line(f"sp -= {count};")
        for i, (name, field) in enumerate(registers):
            cast = "(int)" if name.startswith("qb") else ""
            self._line(f"{name} = {cast}sp[{i}].{field};")
        self._record(self.names.number(("pop", waiting)))
        self._line("goto POP;")

    def _registers(self, words: tuple[TypedAtom, ...]) -> list[tuple[str, str]]:
        """Where a value is on its way from a call, word by word."""
        found: list[tuple[str, str]] = []
        for i, word in enumerate(words):
            kind = letter_of(word)
            found.append((f"q{kind}{i}", _FIELDS[kind]))
            if kind == "v":
                found.append((f"qn{i}", "u"))
        self.returned.update(dict.fromkeys(name for name, _ in found))
        return found

    # blocks

    def _function(self, function: TypedFunction) -> None:
        code = function.resume.code
        self.lines.append(f"F{function.index}:")
        self._line("ROOM")
        self._line(f"if (UNLIKELY(fuel < {function.cost})) {{")
        self._push(function.resume.words, code)
        self._record(self.names.number(("stop", code)))
        self._line("goto STOP; }")
        self._term(function.body)

    def _join_number(self, name: str) -> int:
        return self.names.number(("join", name))

    def _term(self, term: TypedTerm) -> None:
        later: list[Join] = []
        while True:
            match term:
                case Do():
                    self._do(term)
                case Ticks():
                    self._line(f"fuel -= {term.steps};")
                case Join():
                    later.append(term)
                case _:
                    break
            term = term.body
        self._end(term)
        for join in reversed(later):
            self.lines.append(
                f"J{self._join_number(join.name)}: __attribute__((unused));"
            )
            if join.name in self.ways.blocks:
                self._line("ROOM")
            self._term(join.cont)

    def _end(self, term: TypedTerm) -> None:
        match term:
            case IfTyped():
                self._line(f"if ({self._atom(term.test)}) {{")
                self._term(term.then)
                self._line("} else {")
                self._term(term.other)
                self._line("}")
            case Stop():
                self._line("goto GIVE_UP;")
            case Go():
                self._go(term)
            case Give():
                self._tape(term)
                registers = self._registers(term.args)
                is_real = [letter_of(arg) for arg in term.args] == ["d"]
                self._line(f"is_real = {int(is_real)};")
                for (name, _), (text, _) in zip(
                    registers, self._words(term.args), strict=True
                ):
                    self._line(f"{name} = {text};")
                self._line("goto POP;")
            case Invoke():
                self._tape(term)
                if term.push is not None:
                    self._push(term.push.words, term.push.code)
                called = self.program.functions[term.function]
                self._move(called.params, term.args)
                self._line(f"goto F{term.function};")
            case _:
                raise AssertionError("an end of a block")

    def _go(self, term: Go) -> None:
        if term.join in self.ways.blocks:
            self._tape(term)
        join = self.ways.joins[term.join]
        params = [p for p in parts_of(join.params) if isinstance(p, Register)]
        self._move(tuple(params), term.args)
        self._line(f"goto J{self._join_number(term.join)};")

    def _move(self, params: tuple[Register, ...], args: tuple[TypedAtom, ...]) -> None:
        """Assign variables at once: one may be the value of another."""
        moves = [(p, a) for p, a in zip(params, args, strict=True) if p != a]
        self._line("{")
        for i, (param, arg) in enumerate(moves):
            self._line(f"{_TYPES[param.kind]} x{i} = {self._atom(arg)};")
            if isinstance(arg, Register) and arg.kind == "v":
                self._line(f"uint64_t w{i} = {self._version(arg)};")
        for i, (param, _) in enumerate(moves):
            self._line(f"{self._slot(param)} = x{i};")
            if param.kind == "v":
                self._line(f"{self._version(param)} = w{i};")
        self._line("}")

    def _tape(self, end: Go | Give | Invoke) -> None:
        way = self.ways.ways[id(end)]
        kept = self.tape[id(end)].kept
        for i, slot in enumerate(kept):
            self._line(f"tp[{i}].{_FIELDS[slot.kind]} = {self._slot(slot)};")
        self._line(f"tp[{len(kept)}].u = {self.names.number(('way', way.number))};")
        self._line(f"tp += {len(kept) + 1};")

    # operators

    def _do(self, term: Do) -> None:
        if term.op in _VECTORS:
            _VECTORS[term.op](self, term)
            return
        var = self._slot(term.var)
        a, *rest = [self._atom(arg) for arg in term.args] or [""]
        b = rest[0] if rest else ""
        self._line(f"{var} = {_result_text(term.op, a, b)};")
        if term.op == "check-integer":
            bound = "9007199254740992.0"
            self._line(f"if (UNLIKELY(!(fabs({a}) <= {bound}))) goto GIVE_UP;")

    def _ref(self, term: Do) -> None:
        row, at = term.args
        assert isinstance(row, Register)
        v, i = self._slot(row), self._atom(at)
        self._line(f"ROW_PLACE({v}, {self._version(row)}, {i})")
        self._line(f"{self._slot(term.var)} = {v}->value[(uint32_t){i}];")

    def _set(self, term: Do) -> None:
        row, at, value = term.args
        assert isinstance(row, Register)
        v, i = self._slot(row), self._atom(at)
        self._line(f"ROW_PLACE({v}, {self._version(row)}, {i})")
        self._line(f"{v}->value[(uint32_t){i}] = {self._atom(value)};")
        self._line(f"{self._slot(term.var)} = {v};")
        self._line(f"{self._version(term.var)} = ++{v}->version;")

    def _make(self, term: Do) -> None:
        n, value = (self._atom(arg) for arg in term.args)
        self._line(f"ROW_LENGTH({n})")
        var = self._slot(term.var)
        self._line(f"{var} = full_row((size_t){n}, {value});")
        self._line(f"{self._version(term.var)} = 0;")

    def _length(self, term: Do) -> None:
        (row,) = term.args
        self._line(f"{self._slot(term.var)} = (double){self._atom(row)}->length;")

    def _mark(self, term: Do) -> None:
        self._line(f"{self._slot(term.var)} = ++T.marks;")


_VECTORS: dict[str, Callable[[RecordEmission, Do], None]] = {
    "vector-ref": RecordEmission._ref,
    "vector-set": RecordEmission._set,
    "make-vector": RecordEmission._make,
    "vector-length": RecordEmission._length,
    "mark": RecordEmission._mark,
}


def _to_word(name: str) -> str:
    return f"(uint64_t){name}" if name.startswith("qb") else name


def _result_text(op: str, a: str, b: str) -> str:
    """What an operator on doubles gives."""
    if op in ("+", "-", "*", "/"):
        return f"{a} {op} {b}"
    if op in ELEMENTARY:
        return f"double_{op}({a})"
    if op in _COMPARISONS:
        return f"{a} {_COMPARISONS[op]} {b}"
    if op in _AGAINST_ZERO:
        return f"{a} {_AGAINST_ZERO[op]} 0.0"
    if op in _C_FUNCTIONS:
        return f"{_C_FUNCTIONS[op]}({a}, {b})"
    match op:
        case "finite?":
            return f"isfinite({a}) != 0"
        case "min":
            return f"{b} < {a} ? {b} : {a}"
        case "max":
            return f"{b} > {a} ? {b} : {a}"
        case "(-)":
            return f"-{a}"
        case "floor":
            return f"floor({a})"
        case "check-integer" | "real":
            return a
    raise AssertionError(f"no typed operator is called {op}")

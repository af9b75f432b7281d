"""Pass: the intermediate form to C.

One C function, `run`, holds the whole program, so that a call of a known function is a
`goto` and its arguments are registers. Only a return to a frame and a call of a closure
are jumps through a table. No call of the program is a call of C: the C stack does not
grow, however deep the program's recursion.

Longer than other modules: the clauses share one text that they write.
"""

import re
from collections.abc import Iterator

from retape.engines.vlad._fault import Where
from retape.engines.vlad._syntax import Pattern, PConst, PPair, PVar
from retape.engines.vlad.compiler._ir import (
    Apply,
    Atom,
    Branch,
    Call,
    Close,
    Cont,
    Fix,
    Fun,
    FunRef,
    Jump,
    Let,
    Lit,
    Match,
    Module,
    Operate,
    Quoted,
    Return,
    Term,
    Tick,
    Uncons,
    all_functions,
    atoms_of,
    local_functions,
    subterms,
)
from retape.engines.vlad.compiler._live import Cost, Costs, Liveness
from retape.engines.vlad.compiler._operations import operation
from retape.engines.vlad.compiler._static import constant, static_data

FIRST_CODE = 3
"""The runtime's own frames come before those of compiled code."""


def variable(name: str) -> str:
    """A variable's name in C."""
    return "v_" + re.sub(r"\W", "_", name)


class Emission:
    """The text of one module, with what the host must know about its frames."""

    def __init__(self, module: Module) -> None:
        self.module = module
        self.live = Liveness(module)
        self.costs = Costs(self.live)
        self.lines: list[str] = []
        self.cases: list[str] = []
        self.entries: list[str] = []
        self.frames: list[tuple[int, str]] = []
        self.places: dict[int, Where] = {}
        self.codes: dict[str, int] = {}
        self.jumped: set[str] = set()
        self.variables: set[str] = set()
        self.depth = 1
        self.max_words = 0
        self.funs = {fun.index: fun for fun in all_functions(module)}
        terms = list(_terms(module))
        self.used = {a for t in terms for a in atoms_of(t) if isinstance(a, str)}
        self.params = {t.name: t.param for t in terms if isinstance(t, Cont)}
        self._used_params: dict[int, frozenset[str]] = {}

    def text(self) -> str:
        """The whole C file."""
        for fun in self.module.functions.values():
            self._function(fun)
        declared = sorted(variable(v) for v in self.variables)
        return "\n".join(
            [
                '#include "code.h"',
                "",
                *static_data(self.module),
                "",
                "static int run(Val frame, int64_t fuel) {",
                "  Val *hp = G.hp, *limit = G.limit;",
                "  Val k = frame, ret = NOTHING, s0, s1, s2, unused;",
                "  int64_t need;",
                "  int32_t site;",
                "  enum Operator op;",
                "  (void)s2, (void)unused;",
                *(f"  Val {name};" for name in declared),
                *_RESUME,
                *self.cases,
                "  default: __builtin_unreachable();",
                "  }",
                *_ENTER,
                *self.entries,
                "  default: __builtin_unreachable();",
                "  }",
                *self.lines,
                *_TAIL,
                "}",
                "",
                f"#define MAX_BLOCK_WORDS {self.max_words}",
                '#include "api.h"',
                "",
            ]
        )

    # lines

    def _line(self, text: str) -> None:
        self.lines.append("  " * self.depth + text)

    def _set(self, name: str, value: str) -> None:
        if name not in self.used:
            return
        self.variables.add(name)
        self._line(f"{variable(name)} = {value};")

    def _atom(self, atom: Atom) -> str:
        match atom:
            case str():
                self.variables.add(atom)
                return variable(atom)
            case Lit():
                return constant(atom.value)
            case Quoted():
                return f"quoted[{atom.index}]"
            case FunRef():
                return f"closure[{atom.function}]"

    # functions

    def _function(self, fun: Fun) -> None:
        """A function's block, its way in through a closure, and its resume frame."""
        cost = self.costs.of(fun.body)
        needs = sorted(self.live.functions[fun.index] | self._used(fun))
        code = self._code(f"R{fun.index}", len(needs))
        label = f"F{fun.index}"
        self.lines.append(f"{label}: /* {_comment(fun.name)} */")
        self._check(cost, f"S{fun.index}")
        self._term(fun.body)
        self._pause(fun, cost, needs, code)
        self.cases.append(f"  case {code}: {{")
        self.cases.extend(self._loads(needs))
        self.cases.append(f"    goto {label};")
        self.cases.append("  }")
        if fun.index in self.module.functions:
            self._entry(fun)
        for local in self._directly_local(fun.body):
            self._function(local)

    def _directly_local(self, body: Term) -> list[Fun]:
        nested: set[int] = set()
        found = list(local_functions(body))
        for fun in found:
            nested |= {each.index for each in local_functions(fun.body)}
        return [fun for fun in found if fun.index not in nested]

    def _used(self, fun: Fun) -> frozenset[str]:
        if fun.index not in self._used_params:
            live = frozenset(fun.params) & self.live.of(fun.body)
            self._used_params[fun.index] = live
        return self._used_params[fun.index]

    def _check(self, cost: Cost, label: str) -> None:
        self.max_words = max(self.max_words, cost.words)
        test = f"fuel < {cost.steps}"
        if cost.words:
            test += f" || hp + {cost.words} > limit"
        self._line(f"if (UNLIKELY({test})) goto {label};")

    def _pause(self, fun: Fun, cost: Cost, needs: list[str], code: int) -> None:
        self.lines.append(f"S{fun.index}: {{")
        self._line("G.hp = hp;")
        self._line(f"Object *o = small_object({code}, {len(needs) + 1});")
        self._line("hp = G.hp;")
        self._line("o->field[0] = k;")
        for i, name in enumerate(needs, 1):
            self._line(f"o->field[{i}] = {self._atom(name)};")
        self._line("k = tagged(TAG_FRAME, o);")
        self._line(f"need = {cost.steps};")
        self._line("goto PAUSE;")
        self.lines.append("  }")

    def _loads(self, names: list[str]) -> Iterator[str]:
        if names:
            yield "    const Object *o = object(k);"
        for i, name in enumerate(names, 1):
            self.variables.add(name)
            yield f"    {variable(name)} = o->field[{i}];"
        yield "    k = o->field[0];" if names else "    k = object(k)->field[0];"

    def _code(self, what: str, size: int) -> int:
        self.frames.append((size, what))
        return FIRST_CODE + len(self.frames) - 1

    def _entry(self, fun: Fun) -> None:
        """A call through a closure: take the argument apart, load the variables."""
        live = self.live.functions[fun.index]
        self.entries.append(f"  case {fun.index}: {{")
        for i, name in enumerate(fun.env):
            if name in live:
                self.variables.add(name)
                self.entries.append(f"    {variable(name)} = object(s0)->field[{i}];")
        params = iter(fun.params)
        self._take(fun.pattern, "s1", fun.site, True, params, self._used(fun))
        self.entries.append(f"    goto F{fun.index};")
        self.entries.append("  }")

    def _take(
        self,
        pattern: Pattern,
        value: str,
        site: int,
        whole: bool,
        params: Iterator[str],
        used: frozenset[str],
    ) -> None:
        match pattern:
            case PVar():
                name = next(params)
                if name in used:
                    self.entries.append(f"    {variable(name)} = {value};")
            case PConst():
                given = f"{value}, {constant(pattern.value)}, {site}, {int(whole)}"
                self.entries.append(f"    MATCH({given})")
            case PPair():
                self.entries.append(f"    UNCONS({value}, {site}, {int(whole)})")
                for i, part in enumerate((pattern.car, pattern.cdr)):
                    inner = f"object({value})->field[{i}]"
                    self._take(part, inner, site, False, params, used)

    # terms

    def _term(self, term: Term) -> None:
        """A term's statements; continuations follow the term that may call them."""
        later: list[Cont] = []
        while True:
            match term:
                case Let():
                    self._let(term)
                case Uncons():
                    self._uncons(term)
                case Match():
                    a, c = self._atom(term.arg), constant(term.constant.value)
                    self._line(f"MATCH({a}, {c}, {term.site}, {int(term.whole)})")
                case Close():
                    self._allocate(term.var, "CLOSURE", term.function, term.env)
                case Tick():
                    self._line(f"fuel -= {term.steps};")
                case Fix():
                    pass
                case Cont():
                    later.append(term)
                case _:
                    break
            term = term.body
        self._end(term)
        for cont in reversed(later):
            self._cont(cont)

    def _let(self, term: Let) -> None:
        if term.op == "cons":
            self._allocate(term.var, "PAIR", 0, term.args)
            return
        args = [self._atom(a) for a in term.args]
        if term.var in self.used:
            self.variables.add(term.var)
        to = variable(term.var) if term.var in self.used else "unused"
        self._line(operation(term.op, to, args, term.site))

    def _uncons(self, term: Uncons) -> None:
        a = self._atom(term.arg)
        self._line(f"UNCONS({a}, {term.site}, {int(term.whole)})")
        self._set(term.car, f"object({a})->field[0]")
        self._set(term.cdr, f"object({a})->field[1]")

    def _allocate(
        self, var: str, tag: str, code: int, fields: tuple[Atom, ...]
    ) -> None:
        self._line("{")
        self._line(f"  ALLOCATE(o, {code}, {len(fields)})")
        for i, atom in enumerate(fields):
            self._line(f"  o->field[{i}] = {self._atom(atom)};")
        self._set(var, f"tagged(TAG_{tag}, o)")
        self._line("}")

    def _cont(self, term: Cont) -> None:
        """A continuation: its way in from a frame, if it has one, and its block."""
        if term.name not in self.jumped and term.name not in self.codes:
            return
        self.lines.append(f"{variable(term.name)}:;")
        if term.name in self.codes:
            self._frame_entry(term)
        self._term(term.cont)

    def _frame_entry(self, term: Cont) -> None:
        cost = self.costs.conts[term.name]
        self.max_words = max(self.max_words, cost.words)
        test = f"fuel < {cost.steps}"
        if cost.words:
            test += f" || hp + {cost.words} > limit"
        pause = f"{{ need = {cost.steps}; goto PAUSE_RETURN; }}"
        needs = sorted(self.live.conts[term.name])
        self.cases.append(f"  case {self.codes[term.name]}: {{")
        self.cases.append(f"    if (UNLIKELY({test})) {pause}")
        self.cases.extend(self._loads(needs))
        if term.param in self.used:
            self.variables.add(term.param)
            self.cases.append(f"    {variable(term.param)} = ret;")
        self.cases.append(f"    goto {variable(term.name)};")
        self.cases.append("  }")
        self.places[self.codes[term.name]] = term.where

    def _frame(self, cont: str | None) -> None:
        """Push the frame of a continuation that a call returns to."""
        if cont is None:
            return
        needs = sorted(self.live.conts[cont])
        if cont not in self.codes:
            self.codes[cont] = self._code(cont, len(needs))
        self._line("{")
        self._line(f"  ALLOCATE(o, {self.codes[cont]}, {len(needs) + 1})")
        self._line("  o->field[0] = k;")
        for i, name in enumerate(needs, 1):
            self._line(f"  o->field[{i}] = {self._atom(name)};")
        self._line("  k = tagged(TAG_FRAME, o);")
        self._line("}")

    def _end(self, term: Term) -> None:
        match term:
            case Branch():
                self._line(f"if ({self._atom(term.test)} != FALSE) {{")
                self._nested(term.then)
                self._line("} else {")
                self._nested(term.other)
                self._line("}")
            case Jump():
                param = self.params[term.cont]
                self._set(param, self._atom(term.arg))
                self.jumped.add(term.cont)
                self._line(f"goto {variable(term.cont)};")
            case Return():
                self._line(f"ret = {self._atom(term.arg)};")
                self._line("goto RESUME;")
            case Call():
                self._call(term)
            case Apply():
                fun, arg = self._atom(term.fun), self._atom(term.arg)
                self._line(f"s0 = {fun}; s1 = {arg};")
                self._line(f"G.site = {term.site};")
                self._frame(term.cont)
                self._line("goto ENTER;")
            case Operate():
                self._operate(term)

    def _operate(self, term: Operate) -> None:
        for i, atom in enumerate(term.args):
            self._line(f"s{i} = {self._atom(atom)};")
        self._frame(term.cont)
        self._line(f"op = {_OPERATORS[term.op]}; site = {term.site};")
        self._line("goto OPERATE;")

    def _nested(self, term: Term) -> None:
        self.depth += 1
        self._term(term)
        self.depth -= 1

    def _call(self, term: Call) -> None:
        """A call of a known function: its arguments go where it expects them."""
        fun = self.funs[term.function]
        used = self._used(fun)
        moves = [
            (param, self._atom(atom))
            for param, atom in zip(fun.params, term.args, strict=True)
            if param in used and param != atom
        ]
        self._frame(term.cont)
        if len(moves) == 1:
            self._set(*moves[0])
        elif moves:
            self._line("{")
            for i, (_, value) in enumerate(moves):
                self._line(f"  Val m{i} = {value};")
            for i, (param, _) in enumerate(moves):
                self.variables.add(param)
                self._line(f"  {variable(param)} = m{i};")
            self._line("}")
        self._line(f"goto F{fun.index};")


def _terms(module: Module) -> Iterator[Term]:
    for fun in all_functions(module):
        stack = [fun.body]
        while stack:
            term = stack.pop()
            yield term
            stack.extend(subterms(term))


def _comment(name: str | None) -> str:
    return re.sub(r"[^\w?!<>=+-]", "_", name or "lambda")


_OPERATORS = {"j*": "FORWARD", "*j": "REVERSE", "checkpoint-*j": "CHECKPOINT"}

_RESUME = [
    "RESUME:",
    "  switch (code_of(object(k))) {",
    "  case HALT:",
    "    G.hp = hp;",
    "    G.fuel = fuel;",
    "    G.result = ret;",
    "    G.k = NOTHING;",
    "    return 0;",
    "  case RETURN:",
    "    ret = object(k)->field[1];",
    "    k = object(k)->field[0];",
    "    goto RESUME;",
    "  case APPLY:",
    "    s1 = object(k)->field[1];",
    "    s0 = object(k)->field[2];",
    "    k = object(k)->field[0];",
    "    goto ENTER;",
]

_ENTER = [
    "ENTER:",
    "  if (UNLIKELY(tag_of(s0) != TAG_CLOSURE)) {",
    "    G.k = k;",
    '    fail(NOT_FUNCTION, "", G.site, s0, NOTHING);',
    "  }",
    "  switch (code_of(object(s0))) {",
]

_TAIL = [
    "OPERATE: __attribute__((unused));",
    "  G.hp = hp;",
    "  ret = apply_operator(op, s0, s1, s2, &k, site);",
    "  hp = G.hp;",
    "  goto RESUME;",
    "PAUSE_RETURN: __attribute__((unused)); {",
    "    G.hp = hp;",
    "    Object *o = small_object(RETURN, 2);",
    "    o->field[0] = k;",
    "    o->field[1] = ret;",
    "    k = tagged(TAG_FRAME, o);",
    "    hp = G.hp;",
    "  }",
    "PAUSE:",
    "  G.hp = hp;",
    "  G.k = k;",
    "  if (fuel < need) {",
    "    G.fuel = fuel;",
    "    return 1;",
    "  }",
    "  collect();",
    "  k = G.k;",
    "  hp = G.hp;",
    "  goto RESUME;",
]

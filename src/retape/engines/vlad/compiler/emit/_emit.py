"""Pass: the intermediate form to C.

One C function holds some hundred terms (see `_parts`), as a rule all of a program, so
that a call of a known function is a `goto` and its arguments are registers. Only a
return to a frame and a call of a closure are jumps through a table. No call of the
program is a call of C: the C stack does not grow, however deep the program's recursion.
Only what goes from one such function to another passes through memory.
"""

import re
from collections.abc import Iterator

from retape.engines.vlad.compiler.emit._frames import FrameLayout, Output, label
from retape.engines.vlad.compiler.emit._operations import operation, run_of, write_run
from retape.engines.vlad.compiler.emit._parts import (
    PART_TERMS,
    Part,
    assemble,
    is_closed,
    size_of,
)
from retape.engines.vlad.compiler.emit._static_data import constant_text, static_data
from retape.engines.vlad.compiler.ir._c_text import grouped
from retape.engines.vlad.compiler.ir._ir import (
    Apply,
    Branch,
    Call,
    Close,
    Cont,
    Fix,
    Fun,
    Jump,
    Let,
    Lowered,
    Match,
    Operate,
    Register,
    Return,
    Term,
    Tick,
    Uncons,
    all_functions,
    atoms_of,
    entered,
    local_functions,
    terms_of,
)
from retape.engines.vlad.compiler.ir._liveness import Liveness
from retape.engines.vlad.language._core import Pattern, PConst, PPair, PVar
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.operators._table import CONS


class Emission:
    """The text of one module, with what the host must know about its frames.

    Args:
        module: The program.
        live: What its functions and continuations need.
        given_up: Functions that are left to typed code.

    Attributes:
        frames: The layout of its frames.
    """

    def __init__(
        self,
        module: Lowered,
        live: Liveness,
        given_up: frozenset[int] = frozenset(),
    ) -> None:
        self.module = module
        terms = [t for fun in all_functions(module) for t in terms_of(fun.body)]
        self._atoms = {a for t in terms for a in atoms_of(t) if isinstance(a, Register)}
        self.entered = {*entered(module), *module.entries} & module.functions.keys()
        self.parts: list[Part] = []
        self.part = Part(Output(self._atoms))
        self.out = self.part.out
        self.frames = FrameLayout(live, self.out)
        self.called: set[int] = set()  # functions that another part calls
        self.jumped: set[str] = set()
        self.funs = {fun.index: fun for fun in all_functions(module)}
        self.params = {t.name: t.params for t in terms if isinstance(t, Cont)}
        self._used_params: dict[int, frozenset[Register]] = {}
        for functions in grouped(module.functions.values(), size_of, PART_TERMS):
            self._open([index for fun in functions for index in _with_locals(fun)])
            for fun in functions:
                if fun.index not in given_up:
                    self._function(fun)
                elif fun.index in self.entered:
                    self.out.entries.append(f"  case {fun.index}: GIVEN_UP")

    @property
    def places(self) -> dict[int, Where]:
        """Where the continuation of each frame's code stands."""
        return self.frames.places

    def lines(self) -> list[str]:
        """The C of the program's boxed form."""
        doors = {index: self._needs(self.funs[index]) for index in sorted(self.called)}
        return assemble(self.parts, doors, static_data(self.module))

    def _open(self, functions: list[int]) -> None:
        """Begin a part."""
        self._enter(Part(Output(self._atoms), functions))
        self.parts.append(self.part)

    def _enter(self, part: Part) -> None:
        self.part, self.out, self.frames.out = part, part.out, part.out

    def _needs(self, fun: Fun) -> list[Register]:
        return sorted(self.frames.live.functions[fun.index] | self._used(fun))

    def _function(self, fun: Fun) -> None:
        """A function's block, its way in through a closure, and its resume frame."""
        cost = self.frames.costs.of(fun.body)
        needs = self._needs(fun)
        code = self.frames.code()
        self.part.codes.append(code)
        label = f"F{fun.index}"
        self.out.lines.append(f"{label}: /* {_comment(fun.name)} */")
        self.frames.check(cost, f"S{fun.index}")
        self._term(fun.body)
        self.frames.pause(fun, cost, needs, code)
        self.out.cases.append(f"  case {code}: {{")
        self.out.cases.extend(self.frames.loads(needs))
        self.out.cases.append(f"    goto {label};")
        self.out.cases.append("  }")
        if fun.index in self.entered:
            self._entry(fun)
        for local in self._directly_local(fun.body):
            self._function(local)

    def _directly_local(self, body: Term) -> list[Fun]:
        nested: set[int] = set()
        found = list(local_functions(body))
        for fun in found:
            nested |= {each.index for each in local_functions(fun.body)}
        return [fun for fun in found if fun.index not in nested]

    def _used(self, fun: Fun) -> frozenset[Register]:
        if fun.index not in self._used_params:
            live = frozenset(fun.params) & self.frames.live.of(fun.body)
            self._used_params[fun.index] = live
        return self._used_params[fun.index]

    def _entry(self, fun: Fun) -> None:
        """A call through a closure: take the argument apart, load the variables."""
        live = self.frames.live.functions[fun.index]
        self.out.entries.append(f"  case {fun.index}: {{")
        for i, name in enumerate(fun.env):
            if name in live:
                register = self.out.register(name)
                self.out.entries.append(f"    {register} = object(s0)->field[{i}];")
        params = iter(fun.params)
        self._take(fun.pattern, "s1", fun.site, True, params, self._used(fun))
        self.out.entries.append(f"    goto F{fun.index};")
        self.out.entries.append("  }")

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
                    self.out.entries.append(f"    {self.out.register(name)} = {value};")
            case PConst():
                given = f"{value}, {constant_text(pattern.value)}, {site}, {int(whole)}"
                self.out.entries.append(f"    MATCH({given})")
            case PPair():
                self.out.entries.append(f"    UNCONS({value}, {site}, {int(whole)})")
                for i, part in enumerate((pattern.car, pattern.cdr)):
                    inner = f"object({value})->field[{i}]"
                    self._take(part, inner, site, False, params, used)

    def _term(self, term: Term) -> None:
        """A term's statements; continuations follow the term that may call them."""
        later: list[Cont] = []
        while True:
            self.part.terms += 1
            lets, steps, rest = run_of(term)
            if len(lets) > 1:
                if steps:
                    self.out.line(f"fuel -= {steps};")
                write_run(self.out, lets)
                self.part.terms += len(lets)
                term = rest
                continue
            match term:
                case Let():
                    self._let(term)
                case Uncons():
                    self._uncons(term)
                case Match():
                    a, c = self.out.atom(term.arg), constant_text(term.constant.value)
                    self.out.line(f"MATCH({a}, {c}, {term.site}, {int(term.whole)})")
                case Close():
                    self.out.allocate(term.var, "CLOSURE", term.function, term.env)
                case Tick():
                    self.out.line(f"fuel -= {term.steps};")
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
        if term.op == CONS:
            self.out.allocate(term.var, "PAIR", 0, term.args)
            return
        args = [self.out.atom(a) for a in term.args]
        needed = self.out.is_used(term.var)
        to = self.out.register(term.var) if needed else "unused"
        self.out.line(operation(term.op, to, args, term.site))

    def _uncons(self, term: Uncons) -> None:
        a = self.out.atom(term.arg)
        self.out.line(f"UNCONS({a}, {term.site}, {int(term.whole)})")
        self.out.set(term.car, f"object({a})->field[0]")
        self.out.set(term.cdr, f"object({a})->field[1]")

    def _cont(self, term: Cont) -> None:
        """A continuation: its way in from a frame, if it has one, and its block."""
        if term.name not in self.jumped and term.name not in self.frames.codes:
            return
        outer = self.part
        full = self.part.terms > PART_TERMS
        if full and term.name not in self.jumped and is_closed(term):
            self._open([])
        self.out.lines.append(f"{label(term.name)}:;")
        if term.name in self.frames.codes:
            self.frames.entry(term)
            self.part.codes.append(self.frames.codes[term.name])
        self._term(term.cont)
        self._enter(outer)

    def _end(self, term: Term) -> None:
        match term:
            case Branch():
                self.out.line(f"if ({self.out.atom(term.test)} != FALSE) {{")
                self._nested(term.then)
                self.out.line("} else {")
                self._nested(term.other)
                self.out.line("}")
            case Jump():
                for param, arg in zip(self.params[term.cont], term.args, strict=True):
                    self.out.set(param, self.out.atom(arg))
                self.jumped.add(term.cont)
                self.out.line(f"goto {label(term.cont)};")
            case Return():
                (value,) = term.args
                self.out.line(f"ret = {self.out.atom(value)};")
                self.out.line("goto RESUME;")
            case Call():
                self._call(term)
            case Apply():
                fun, arg = self.out.atom(term.fun), self.out.atom(term.arg)
                self.out.line(f"s0 = {fun}; s1 = {arg};")
                self.out.line(f"G.site = {term.site};")
                self.frames.push(term.cont)
                self.out.line("goto ENTER;")
            case Operate():
                self._operate(term)

    def _operate(self, term: Operate) -> None:
        for i, atom in enumerate(term.args):
            self.out.line(f"s{i} = {self.out.atom(atom)};")
        self.frames.push(term.cont)
        self.out.line(f"op = {_OPERATORS[term.op]}; site = {term.site};")
        self.out.line("goto OPERATE;")

    def _nested(self, term: Term) -> None:
        self.out.depth += 1
        self._term(term)
        self.out.depth -= 1

    def _call(self, term: Call) -> None:
        """A call of a known function: its arguments go where it expects them."""
        fun = self.funs[term.function]
        used = self._used(fun)
        moves = [
            (param, self.out.atom(atom))
            for param, atom in zip(fun.params, term.args, strict=True)
            if param in used and param != atom
        ]
        self.frames.push(term.cont)
        if fun.index not in self.part.functions:
            self._leave(fun, dict(moves))
            return
        if len(moves) == 1:
            self.out.set(*moves[0])
        elif moves:
            self.out.line("{")
            for i, (_, value) in enumerate(moves):
                self.out.line(f"  Val m{i} = {value};")
            for i, (param, _) in enumerate(moves):
                self.out.line(f"  {self.out.register(param)} = m{i};")
            self.out.line("}")
        self.out.line(f"goto F{fun.index};")

    def _leave(self, fun: Fun, moves: dict[str, str]) -> None:
        """A call of a function of another part: what it needs goes through memory."""
        self.called.add(fun.index)
        needs = self._needs(fun)
        self.out.most_passed = max(self.out.most_passed, len(needs))
        for i, name in enumerate(needs):
            value = moves[name] if name in moves else self.out.atom(name)
            self.out.line(f"passed[{i}] = {value};")
        self.out.line(f"next = TO_FUNCTION + {fun.index};")
        self.out.line("goto LEAVE;")


def _with_locals(fun: Fun) -> list[int]:
    return [fun.index, *(local.index for local in local_functions(fun.body))]


def _comment(name: str | None) -> str:
    return re.sub(r"[^\w?!<>=+-]", "_", name or "lambda", flags=re.ASCII)


_OPERATORS = {"j*": "FORWARD", "*j": "REVERSE", "checkpoint-*j": "CHECKPOINT"}

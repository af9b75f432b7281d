"""Pass: the intermediate form to the typed form; tuples become their parts."""

from collections.abc import Iterator, Sequence

from retape.engines.vlad.compiler.ir._ir import (
    FIRST_CODE,
    NOTHING,
    Apply,
    Atom,
    Branch,
    Call,
    Close,
    Cont,
    Fix,
    Fun,
    Jump,
    Let,
    Lit,
    Match,
    Operate,
    Register,
    Return,
    Stop,
    Term,
    Tick,
    Uncons,
    all_functions,
    entered,
    letter_of,
    terms_of,
)
from retape.engines.vlad.compiler.ir._liveness import Costs
from retape.engines.vlad.compiler.typed._form import (
    Frame,
    Shape,
    Tuple,
    TypedFunction,
    TypedProgram,
    Waiting,
    parts_of,
)
from retape.engines.vlad.compiler.typed._kinds import (
    LIST,
    LIST_TESTS,
    REAL,
    ROW,
    TRUTH,
    UNIT,
    Kind,
    signature_of,
)
from retape.engines.vlad.compiler.typed._row_operations import CELL, keeps_rows
from retape.engines.vlad.compiler.typed._typed_functions import Typable
from retape.engines.vlad.language._core import Pattern, PConst, PPair, PVar
from retape.engines.vlad.operators._table import (
    CAR,
    CDR,
    CONS,
    EQUAL,
    IS_NULL,
    OWN_SET,
    VECTOR_SET,
)

Bindings = dict[str, Shape]


def is_refused(term: Let) -> bool:
    """Whether an operand is a constant that the operator does not take."""
    wanted, _ = signature_of(term.op) or ((), REAL)
    given = zip(term.args, wanted, strict=False)
    return any(
        isinstance(atom, Lit) and (type(atom.value) is not float or kind != REAL)
        for atom, kind in given
    )


def shape_of(atom: Atom, known: Bindings, kind: Kind = UNIT) -> Shape:
    """An atom's value, where one of a kind is expected."""
    if isinstance(atom, Lit):
        return () if atom == NOTHING and kind != LIST else atom
    assert isinstance(atom, Register), "kinds agree"
    return known[atom]


def words_of(atom: Atom, known: Bindings, kind: Kind) -> tuple[Atom, ...]:
    return tuple(parts_of(shape_of(atom, known, kind)))


def slots_of(shapes: "Sequence[Shape] | Iterator[Shape]") -> Iterator[Register]:
    """The variables in some values, each once."""
    atoms = (part for shape in shapes for part in parts_of(shape))
    yield from dict.fromkeys(a for a in atoms if isinstance(a, Register))


_LETTERS = {REAL: "d", TRUTH: "b", ROW: "v", LIST: "l"}


class TypedLowering:
    """One module's conversion.

    Args:
        typable: The program, and which of its functions are converted.
    """

    def __init__(self, typable: Typable) -> None:
        module, live = typable.module, typable.live
        self.module, self.live, self.costs = module, live, Costs(live)
        self.kinds, self.good = typable.kinds, typable.functions
        self.funs = {fun.index: fun for fun in all_functions(module)}
        self.used = {
            i: [p for p in f.params if p in needed]
            for i, f in self.funs.items()
            if i in self.good and (needed := live.of(f.body)) is not None
        }
        self.entered = entered(module) & self.module.functions.keys()
        self.program = TypedProgram()
        self._set = OWN_SET if keeps_rows(module) else VECTOR_SET
        self._env: Bindings = {}
        self._params: dict[str, str] = {}
        self._result: Kind = REAL  # of the function that is converted
        self._returned: set[str | None] = set()
        self._count = 0

    def lower(self) -> TypedProgram:
        """Convert every function that can be."""
        for fun in self.module.functions.values():
            for name in fun.env:  # functions of one group share the names of theirs
                self._env.setdefault(name, self.new(name))
            self._any_function(fun, {name: self._env[name] for name in fun.env})
        return self.program

    def new(self, name: str) -> Shape:
        """New variables for a value of a variable's kind."""
        return self._of_kind(name, self.kinds.of(name))

    def _of_kind(self, name: str, kind: Kind) -> Shape:
        if isinstance(kind, tuple):
            car, cdr = kind
            return Tuple(self._of_kind(name, car), self._of_kind(name, cdr))
        return () if kind == UNIT else self._slot(name, _LETTERS.get(kind, "d"))

    def _slot(self, name: str, kind: str) -> Register:
        self._count += 1
        return Register(f"{name.rsplit('.', 1)[0]}.{kind}{self._count}", kind)

    def _code(self) -> int:
        """The code of a new frame."""
        self.program.codes += 1
        return FIRST_CODE + self.program.codes - 1

    def _any_function(self, fun: Fun, outer: Bindings) -> None:
        """A function, or only those inside it that can be typed."""
        bindings = {**outer, **{p: self.new(p) for p in fun.params}}
        if fun.index in self.good:
            self._function(fun, bindings)
        else:
            self._search(fun.body, bindings)

    def _search(self, term: Term, bindings: Bindings) -> None:
        """Functions inside one that is boxed code."""
        stack: list[tuple[Term, Bindings]] = [(term, bindings)]
        while stack:
            top, known = stack.pop()
            match top:
                case Fix():
                    for fun in top.functions:
                        self._any_function(fun, known)
                case Let():
                    known = {**known, top.var: self.new(top.var)}
                case Uncons():
                    more = {n: self.new(n) for n in (top.car, top.cdr)}
                    known = {**known, **more}
                case Cont():
                    more = {name: self.new(name) for name in top.params}
                    stack.append((top.cont, {**known, **more}))
                case Branch():
                    stack += [(top.then, known), (top.other, known)]
                    continue
                case Close():
                    known = {**known, top.var: self.new(top.var)}
                case Match() | Tick():
                    pass
                case Jump() | Return() | Call() | Apply() | Operate() | Stop():
                    continue
            stack.append((top.body, known))

    def _function(self, fun: Fun, bindings: Bindings) -> None:
        used = self.used[fun.index]
        live = sorted(self.live.functions[fun.index])
        needs = sorted({*live, *used})
        made = TypedFunction(
            fun.index,
            fun.name,
            tuple(slots_of(bindings[p] for p in used)),
            tuple(
                slots_of(bindings[n] for n in sorted(self.live.functions[fun.index]))
            ),
            Frame(self._code(), tuple(bindings[n] for n in needs)),
            self._enter(fun, bindings),
            self.costs.of(fun.body).steps,
            self._of_kind("value", self.kinds.result(fun.index)),
            Stop(),
        )
        self.program.functions[fun.index] = made
        self._returned |= {t.cont for t in terms_of(fun.body) if isinstance(t, Call)}
        outer, self._result = self._result, self.kinds.result(fun.index)
        made.body = self._term(fun.body, bindings)
        self._result = outer

    def _enter(self, fun: Fun, bindings: Bindings) -> Frame | None:
        if fun.index not in self.entered:
            return None
        names = iter(fun.params)
        argument = self._taken(fun.pattern, names, bindings)
        if argument is None:
            return None
        env = (bindings[name] for name in fun.env)
        return Frame(fun.index, (argument, *env))

    def _taken(
        self, pattern: Pattern, names: Iterator[str], bindings: Bindings
    ) -> "Shape | None":
        match pattern:
            case PVar():
                return bindings[next(names)]
            case PConst():
                return () if pattern.value == () else None
            case PPair():
                car = self._taken(pattern.car, names, bindings)
                cdr = self._taken(pattern.cdr, names, bindings)
                if car is None or cdr is None:
                    return None
                return Tuple(car, cdr)

    def _term(self, term: Term, known: Bindings) -> Term:
        match term:
            case Let():
                return self._let(term, known)
            case Uncons():
                pair = shape_of(term.arg, known)
                if isinstance(pair, Tuple):
                    parts = {term.car: pair.car, term.cdr: pair.cdr}
                    return self._term(term.body, {**known, **parts})
                if isinstance(pair, Register | Lit) and letter_of(pair) == "l":
                    return self._uncons_list(term, pair, known)
                return Stop()  # a constant that is no pair
            case Match():
                return self._match(term, known)
            case Tick():
                return Tick(term.steps, self._term(term.body, known))
            case Fix():
                for fun in term.functions:
                    self._any_function(fun, known)
                return self._term(term.body, known)
            case Cont():
                return self._cont(term, known)
            case Branch():
                test = shape_of(term.test, known)
                if not isinstance(test, Register):  # what is not false is true
                    test = Lit(not (isinstance(test, Lit) and test.value is False))
                then = self._term(term.then, known)
                return Branch(test, then, self._term(term.other, known))
            case Jump():
                (value,), kind = term.args, self.kinds.of(self._params[term.cont])
                return Jump(term.cont, words_of(value, known, kind))
            case Return():
                (value,) = term.args
                return Return(words_of(value, known, self._result))
            case Call():
                return self._call(term, known)
            case _:
                raise AssertionError("no typed function has such a term")

    def _let(self, term: Let, known: Bindings) -> Term:
        if term.op.startswith("fault:") or is_refused(term):
            return Stop()
        if term.op == CONS:
            kind = self.kinds.of(term.var)
            if kind == LIST:
                return self._cons_list(term, known)
            assert isinstance(kind, tuple), "kinds agree"
            args = zip(term.args, kind, strict=True)
            car, cdr = (shape_of(a, known, of) for a, of in args)
            return self._term(term.body, {**known, term.var: Tuple(car, cdr)})
        if term.op in LIST_TESTS:
            return self._list_test(term, known)
        args = tuple(part for a in term.args for part in parts_of(shape_of(a, known)))
        var = self.new(term.var)
        assert isinstance(var, Register)
        op = self._set if term.op == VECTOR_SET else term.op
        body = self._term(term.body, {**known, term.var: var})
        return Let(var, op, args, -1, body)

    def _list_test(self, term: Let, known: Bindings) -> Term:
        shape = shape_of(term.args[0], known)
        if not isinstance(shape, Register):
            is_so = Lit(shape == () and term.op == IS_NULL)
            return self._term(term.body, {**known, term.var: is_so})
        test = self._slot(term.var, "b")
        rest = self._term(term.body, {**known, term.var: test})
        return Let(test, term.op, (shape,), -1, rest)

    def _cons_list(self, term: Let, known: Bindings) -> Term:
        car = words_of(term.args[0], known, REAL)
        cell = self._slot(term.var, "l")
        args = (*car, *words_of(term.args[1], known, LIST))
        body = self._term(term.body, {**known, term.var: cell})
        return Let(cell, CELL, args, -1, body)

    def _uncons_list(self, term: Uncons, cell: Register | Lit, known: Bindings) -> Term:
        car, cdr = self._slot(term.car, "d"), self._slot(term.cdr, "l")
        parts: Bindings = {term.car: car, term.cdr: cdr}
        rest = self._term(term.body, {**known, **parts})
        return Let(car, CAR, (cell,), -1, Let(cdr, CDR, (cell,), -1, rest))

    def _match(self, term: Match, known: Bindings) -> Term:
        value, wanted = shape_of(term.arg, known), term.constant.value
        body = self._term(term.body, known)
        if isinstance(value, Register) and value.kind == "l":
            if wanted != ():
                return Stop()
            test = self._slot("empty", "b")
            return Let(test, IS_NULL, (value,), -1, Branch(test, body, Stop()))
        if isinstance(value, Tuple) or (value == ()) != (wanted == ()):
            return Stop()
        if isinstance(value, tuple):
            return body
        if isinstance(wanted, bool):
            return (
                Branch(value, body, Stop()) if wanted else Branch(value, Stop(), body)
            )
        test = self._slot("same", "b")
        compared = value, term.constant
        return Let(test, EQUAL, compared, -1, Branch(test, body, Stop()))

    def _cont(self, term: Cont, known: Bindings) -> Term:
        (name,) = term.params
        param = self.new(name)
        self._params[term.name] = name
        live = sorted(self.live.conts[term.name])
        frame = None
        if term.name in self._returned:
            frame = Frame(self._code(), tuple(known[name] for name in live))
        slots = tuple(slots_of(known[name] for name in live))
        cost = self.costs.conts[term.name].steps
        self.program.conts[term.name] = Waiting(param, slots, frame, cost)
        cont = self._term(term.cont, {**known, name: param})
        body = self._term(term.body, known)
        made = Cont(term.name, tuple(slots_of([param])), cont, body, term.where)
        if frame is not None:
            self.program.returns[frame.code] = made
        return made

    def _call(self, term: Call, known: Bindings) -> Term:
        params = self.funs[term.function].params
        used = self.used[term.function]
        args = tuple(
            part
            for param, arg in zip(params, term.args, strict=True)
            if param in used
            for part in words_of(arg, known, self.kinds.of(param))
        )
        return Call(term.function, args, term.cont)

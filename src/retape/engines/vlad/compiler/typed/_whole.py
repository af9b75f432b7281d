"""Analysis: which doubles are always whole, so that C may have them as integers.

What is a place of a vector, or is counted with one, is demanded to be whole. A demanded
variable that comes from outside is looked at once, when a state is loaded; a function
to which something else is given there is left to boxed code. All others have to be
whole by what they are computed from. Whole is what is an integer of at most 2**53, and
not the negative zero, which an integer could not be.
"""

from collections.abc import Iterable

from retape.engines.vlad.compiler.ir._ir import (
    Atom,
    Call,
    Cont,
    Jump,
    Let,
    Lit,
    Register,
    Return,
    terms_of,
)
from retape.engines.vlad.compiler.typed._form import TypedProgram
from retape.engines.vlad.compiler.typed._row_operations import SETS
from retape.engines.vlad.operators._row import Trait
from retape.engines.vlad.operators._table import (
    ADD,
    MULTIPLY,
    OPERATORS,
    SUBTRACT,
    VECTOR_LENGTH,
    names_with,
)

_MOST_WHOLE = 2.0**53

PLACES = {n: row.place for n, row in OPERATORS.items() if row.place is not None}
"""Operators with a place or a length, and which of their operands it is."""

TESTS_OF_TWO = {n for n, row in OPERATORS.items() if row.is_test and row.arity == 2}

_SUMS = (ADD, SUBTRACT)
_FLOORS, _CHECKS = names_with(Trait.FLOOR), names_with(Trait.CHECK)
_KEEPING_CHECKED = names_with(Trait.INTEGRAL | Trait.CHECK)


def is_whole_constant(atom: Atom) -> bool:
    """Whether a constant is one, and not the negative zero."""
    value = atom.value if isinstance(atom, Lit) else None
    if type(value) is not float or not abs(value) <= _MOST_WHOLE:
        return False
    return value.is_integer() and str(value) != "-0.0"


def whole_slots(program: TypedProgram) -> frozenset[Register]:
    """The variables that are whole."""
    flows = _Flows(program)
    places = [do.args[PLACES[do.op]] for do in flows.steps.values() if do.op in PLACES]
    places += [do.args[1] for do in flows.sets]
    demanded = flows.before(places)
    beside = flows.before(flows.compared(demanded))
    found = demanded | {r for r in beside if r not in flows.outside}
    while True:
        wrong = {r for r in found if not flows.is_whole(r, found, demanded)}
        if not wrong:
            return frozenset(found)
        found -= wrong


class _Flows:
    """Where the doubles of a program come from.

    Attributes:
        steps: By the variable that each binds.
        sets: Assignments of items.
        into: What else is assigned to a variable.
        outside: Variables that come from outside of typed code.
    """

    def __init__(self, program: TypedProgram) -> None:
        self.steps: dict[Register, Let] = {}
        self.sets: list[Let] = []
        self.into: dict[Register, list[Atom]] = {}
        self.outside: set[Register] = set()
        self._signed: set[Register] = set()
        self._beside: dict[Atom, list[Atom]] = {}
        self._program = program
        self._joins = {
            term.name: term
            for fun in program.functions.values()
            for term in terms_of(fun.body)
            if isinstance(term, Cont)
        }
        self._gives, self._tails = self._values()
        for fun in program.functions.values():
            if fun.enter is not None:
                self._from_outside(fun.enter.words)
            for term in terms_of(fun.body):
                self._note(term)
        bound = {*self.steps, *self.into}
        for fun in program.functions.values():
            self._from_outside(w for w in fun.resume.words if w not in bound)

    def _from_outside(self, words: Iterable[Atom]) -> None:
        self.outside.update(w for w in words if isinstance(w, Register))

    def _values(self) -> tuple[dict[int, list[Return]], dict[int, set[int]]]:
        """What functions give, and the functions that they leave that to."""
        gives: dict[int, list[Return]] = {}
        tails: dict[int, set[int]] = {}
        for fun in self._program.functions.values():
            gives[fun.index], tails[fun.index] = [], set()
            for term in terms_of(fun.body):
                if isinstance(term, Return):
                    gives[fun.index].append(term)
                elif isinstance(term, Call) and term.cont is None:
                    tails[fun.index].add(term.function)
        return gives, tails

    def _note(self, term: object) -> None:
        match term:
            case Let():
                if term.op in SETS:
                    self.sets.append(term)
                else:
                    self.steps[term.var] = term
                self._used(term)
            case Jump():
                self._assigned(self._joins[term.cont].params, term.args)
            case Return():
                self._signs(term.args)
            case Call():
                called = self._program.functions[term.function]
                self._assigned(called.params, term.args)
                if term.cont is not None:
                    self._signs(self._program.pushed(term.cont).words)
                    self._returned(term.function, self._joins[term.cont].params)

    def _used(self, step: Let) -> None:
        if step.op in PLACES:
            at = PLACES[step.op]
            self._signs(a for i, a in enumerate(step.args) if i != at)
        elif step.op in _SUMS:
            a, b = step.args
            self._beside.setdefault(b, []).append(a)
            if step.op == ADD:
                self._beside.setdefault(a, []).append(b)
            else:
                self._signs((a,))
        elif step.op not in (*TESTS_OF_TWO, *_CHECKS):
            self._signs(step.args)

    def _signs(self, atoms: Iterable[Atom]) -> None:
        """The sign of a zero may be told where these are used."""
        self._signed.update(a for a in atoms if isinstance(a, Register))

    def _assigned(self, params: Iterable[Atom], args: Iterable[Atom]) -> None:
        args = tuple(args)
        self._signs(args)
        for param, arg in zip(params, args, strict=True):
            if isinstance(param, Register):
                self.into.setdefault(param, []).append(arg)

    def _returned(self, function: int, params: tuple[Register, ...]) -> None:
        seen, pending = {function}, [function]
        while pending:
            index = pending.pop()
            for give in self._gives[index]:
                self._assigned(params, give.args)
            more = self._tails[index] - seen
            seen |= more
            pending += more

    def before(self, atoms: Iterable[Atom]) -> set[Register]:
        """The variables that have to be whole where these have to."""
        found: set[Register] = set()
        pending = list(atoms)
        while pending:
            atom = pending.pop()
            if not isinstance(atom, Register) or atom in found or atom.kind != "d":
                continue
            found.add(atom)
            pending += self.into.get(atom, ())
            step = self.steps.get(atom)
            if step is not None and step.op in _KEEPING_CHECKED:
                pending += step.args
        return found

    def compared(self, found: set[Register]) -> list[Atom]:
        """What is compared with one of these."""
        steps = (do for do in self.steps.values() if do.op in TESTS_OF_TWO)
        return [a for do in steps if found & {*do.args} for a in do.args]

    def is_whole(
        self, slot: Register, found: set[Register], demanded: set[Register]
    ) -> bool:
        """Whether a variable is whole if these are."""
        if slot in self.outside and slot not in demanded:
            return False
        step = self.steps.get(slot)
        if step is not None:
            return self._computes(step, found)
        return all(a in found or is_whole_constant(a) for a in self.into.get(slot, ()))

    def _computes(self, step: Let, found: set[Register]) -> bool:
        if step.op == VECTOR_LENGTH:
            return True
        given = [a in found or is_whole_constant(a) for a in step.args]
        if step.op in _CHECKS and not given[0]:
            return self._is_plain_sum(step.args[0], found)
        if step.op in (*_CHECKS, MULTIPLY):
            return all(given) and (
                not self._may_be_negative_zero(step.var)
                or self._has_no_sign(step.var, found)
            )
        if step.op not in _SUMS:
            return False
        plain = [self._is_plain(a, found) for a in step.args]
        return (any(plain) if step.op == ADD else plain[0]) and all(
            self._is_integral(a, found, {}) for a in step.args
        )

    def _is_plain_sum(self, atom: Atom, found: set[Register]) -> bool:
        step = self.steps.get(atom) if isinstance(atom, Register) else None
        return step is not None and step.op in _SUMS and self._computes(step, found)

    def _is_plain(self, atom: Atom, found: set[Register]) -> bool:
        """Whether an operand is whole, and surely no negative zero."""
        if not isinstance(atom, Register):
            return is_whole_constant(atom)
        return atom in found and not self._may_be_negative_zero(atom)

    def _may_be_negative_zero(self, slot: Atom) -> bool:
        step = self.steps.get(slot) if isinstance(slot, Register) else None
        if step is not None and step.op in _CHECKS:
            return self._may_be_negative_zero(step.args[0])
        return step is not None and step.op == MULTIPLY

    def _has_no_sign(self, slot: Register, found: set[Register]) -> bool:
        """Whether nobody could tell that a zero was negative: 0 + -0 is 0."""
        beside = self._beside.get(slot, ())
        return slot not in self._signed and all(
            self._is_plain(a, found) for a in beside
        )

    def _is_integral(
        self,
        atom: Atom,
        found: set[Register],
        known: dict[Register, bool],
    ) -> bool:
        """Whether an operand is an integer, of whatever size, or is not finite."""
        if not isinstance(atom, Register):
            return is_whole_constant(atom)
        if atom in found:
            return True
        if atom not in known:
            step = self.steps.get(atom)
            known[atom] = step is not None and (
                step.op in _FLOORS
                or (
                    step.op in _KEEPING_CHECKED
                    and all(self._is_integral(a, found, known) for a in step.args)
                )
            )
        return known[atom]

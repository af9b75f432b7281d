"""Analysis: the ways through a block, from where it is entered to where it is left.

A block begins with a function, or with a join that is a block of its own: one that a
call returns to, or that is reached by ways whose reverse is different. Other joins are
passed through: the checks that Python's semantics demands make many, at which a fault
leaves the program and all else is as before. What was taken is one number on the tape,
as profilers number the paths of a flow graph without loops (Ball and Larus 1996).
"""

from dataclasses import dataclass, field

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
from retape.engines.vlad.compiler.typed._row_operations import CELL, gives_row
from retape.engines.vlad.operators._table import CDR


@dataclass(frozen=True, slots=True)
class Passed:
    """A join's variable that is another name of a value on this way."""

    var: Register
    value: Atom


Step = Let | Passed


@dataclass(slots=True, eq=False)
class Way:
    """One way through a block: what it does that has a reverse, and how it ends.

    Attributes:
        steps: What it does.
        end: How it ends.
        number: Its number on the tape.
        loop: The function that it begins with and calls at its end, if it is the only
            way that does: the tape then has how many times it was taken in a row.
        leaves: The function with such a way that it begins with, if it is another one.
        block: The join that it begins with, if that is a block.
    """

    steps: tuple[Step, ...]
    end: Jump | Return | Call
    number: int = -1
    loop: TypedFunction | None = None
    leaves: TypedFunction | None = None
    block: Cont | None = None


@dataclass(slots=True)
class Ways:
    """The ways of a program.

    Attributes:
        ways: By the term that ends them.
        blocks: The joins that are blocks, by name.
        joins: All joins.
        targets: The names of joins that ways of other blocks go to.
        framed: The names of joins to which calls return.
    """

    ways: dict[int, Way] = field(default_factory=dict)
    blocks: dict[str, Cont] = field(default_factory=dict)
    joins: dict[str, Cont] = field(default_factory=dict)
    targets: set[str] = field(default_factory=set)
    framed: set[str] = field(default_factory=set)

    def returned_to(self, join: Cont | None) -> bool:
        """Whether only calls that return lead to a join: its ways say that one has."""
        return (
            join is not None
            and join.name in self.framed
            and join.name in self.blocks
            and join.name not in self.targets
        )


class TooManyWays(Exception):
    """The reverse code would be too long."""


MOST_STEPS = 20_000
"""Steps of all ways of a program; each is a statement or two of C."""

MOST_WAYS = 2_000
"""Ways of a program; gcc 12 takes some 15 ms for each."""


def find_ways(program: TypedProgram, useful: frozenset[Register]) -> Ways:
    """All ways of all blocks, numbered.

    Raises:
        TooManyWays: If there are so many that boxed code is to be preferred.
    """
    finder = _Finder(useful)
    finder.found.framed = {join.name for join in program.returns.values()}
    for function in program.functions.values():
        finder.function(function)
    for number, way in enumerate(finder.found.ways.values()):
        way.number = number
    return finder.found


class _Finder:
    def __init__(self, useful: frozenset[Register]) -> None:
        self.useful = useful
        self.found = Ways()
        self.steps = 0

    def function(self, function: TypedFunction) -> None:
        ways = self._ways(function.body)
        self._keep(ways)
        again = [way for way in ways if _is_loop(way, function)]
        if len(again) == 1:
            for way in ways:
                way.leaves = function
            again[0].loop, again[0].leaves = function, None

    def _keep(self, ways: list[Way]) -> None:
        for way in ways:
            self.found.ways[id(way.end)] = way
            self.steps += len(way.steps) + 1
            if isinstance(way.end, Jump):
                self.found.targets.add(way.end.cont)
            if self.steps > MOST_STEPS or len(self.found.ways) > MOST_WAYS:
                raise TooManyWays

    def _ways(self, term: Term) -> list[Way]:
        match term:
            case Tick():
                return self._ways(term.body)
            case Let():
                ways = self._ways(term.body)
                if not self._has_reverse(term):
                    return ways
                return [Way((term, *way.steps), way.end) for way in ways]
            case Branch():
                return self._ways(term.then) + self._ways(term.other)
            case Cont():
                return self._join(term)
            case Stop():
                return []
            case Jump() | Return() | Call():
                return [Way((), term)]
            case _:
                raise AssertionError("no typed function has such a term")

    def _has_reverse(self, term: Let) -> bool:
        """Whether an adjoint changes, if only because the variable ends here.

        What follows in a list is looked at again, where the reverse takes it.
        """
        return term.var in self.useful or term.op in (CELL, CDR) or gives_row(term)

    def _join(self, term: Cont) -> list[Way]:
        self.found.joins[term.name] = term
        ways = self._ways(term.body)
        coming, others = [], []
        for way in ways:
            goes = isinstance(way.end, Jump) and way.end.cont == term.name
            (coming if goes else others).append(way)
        shared = term.name in self.found.framed | self.found.targets
        if not coming and not shared:
            return others
        inner = self._ways(term.cont)
        passed = None if shared else self._passed(term, coming)
        if passed is None:
            self.found.blocks[term.name] = term
            for way in inner:
                way.block = term
            self._keep(inner)
            return ways
        return others + [Way((*passed, *way.steps), way.end) for way in inner]

    def _passed(self, term: Cont, coming: list[Way]) -> "tuple[Step, ...] | None":
        """The steps that lead to a join whichever way it is reached; or nothing."""
        ends = [way.end for way in coming if isinstance(way.end, Jump)]
        params = term.params
        same = [
            len({_identity(end.args[i]) for end in ends}) == 1
            for i, _ in enumerate(params)
        ]
        names: tuple[Step, ...] = tuple(
            Passed(param, arg)
            for param, arg, is_same in zip(params, ends[0].args, same, strict=True)
            if isinstance(param, Register) and is_same
        )
        if len(coming) == 1:
            return (*coming[0].steps, *names)
        differ = any(
            param in self.useful
            for param, is_same in zip(params, same, strict=True)
            if not is_same
        )
        if not differ and not any(way.steps for way in coming):
            return names
        return None


def _is_loop(way: Way, function: TypedFunction) -> bool:
    end = way.end
    return isinstance(end, Call) and end.function == function.index and end.cont is None


def _identity(atom: Atom) -> object:
    """What makes two atoms the same: also the sign of a zero, and what a NaN is."""
    return atom if isinstance(atom, Register) else (type(atom), repr(atom))

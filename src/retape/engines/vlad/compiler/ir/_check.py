"""The checker of the intermediate form, run on the output of every pass.

Every variable is bound once and before it is used, every continuation that is called
is in scope, and functions and continuations are given as many values as they take, of
typed code those of the kinds that they take.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from retape.engines.vlad.compiler.ir._ir import (
    Apply,
    Atom,
    Call,
    Close,
    Cont,
    Fix,
    FunRef,
    Jump,
    Lowered,
    Operate,
    Quoted,
    Register,
    Return,
    Term,
    all_functions,
    atoms_of,
    binds,
    letter_of,
    subterms,
)


class IllFormed(AssertionError):
    """A pass produced something that is no intermediate form: a bug of ours."""


ANY_VALUE = Register("value")


@dataclass(frozen=True, slots=True)
class Takes:
    """What a function takes from a call, and from where it stands; what it gives."""

    params: tuple[Register, ...]
    live: tuple[Register, ...] = ()
    gives: tuple[Atom, ...] = (ANY_VALUE,)
    env: tuple[Register, ...] = ()


def check(module: Lowered) -> Lowered:
    """Return the module, or say what is wrong with it."""
    functions = {fun.index: fun for fun in all_functions(module)}
    takes = {i: Takes(fun.params, env=fun.env) for i, fun in functions.items()}
    checker = Checker(takes, len(module.quoted))
    for index, fun in module.functions.items():
        checker.function(index, fun.body, fun.env)
    for entry in module.entries:
        if entry not in module.functions:
            raise IllFormed(f"entry {entry} is no function")
    return module


class Checker:
    """Looks at the functions of one module.

    Args:
        functions: What they take, by number.
        quoted: How many quoted data there are.

    Attributes:
        waits: Of continuations what they need from outside, and what waits for them.
    """

    def __init__(self, functions: Mapping[int, Takes], quoted: int = 0) -> None:
        self.functions = functions
        self.quoted = quoted
        self.waits: dict[str, tuple[tuple[Register, ...], tuple[Atom, ...]]] = {}
        self._bound: set[str] = set()
        self._conts: dict[str, tuple[Register, ...]] = {}

    def function(self, index: int, body: Term, scope: Iterable[str]) -> None:
        """A function, where some variables are bound."""
        takes = self._known(index)
        self._bind(takes.params)
        self._term(body, {*scope, *takes.params}, frozenset(), takes)

    def need(self, atoms: Iterable[Atom], scope: Collection[str]) -> None:
        """Variables that have to be bound."""
        for atom in atoms:
            if isinstance(atom, Register) and atom not in scope:
                raise IllFormed(f"`{atom}` is used where it is not bound")
            if isinstance(atom, FunRef) and self._known(atom.function).env:
                raise IllFormed(f"function {atom.function} is no constant")
            if isinstance(atom, Quoted) and atom.index >= self.quoted:
                raise IllFormed(f"there is no quoted datum {atom.index}")

    def _bind(self, names: tuple[Register, ...]) -> None:
        for name in names:
            if name in self._bound:
                raise IllFormed(f"`{name}` is bound twice")
            self._bound.add(name)

    def _known(self, index: int) -> Takes:
        if index not in self.functions:
            raise IllFormed(f"there is no function {index}")
        return self.functions[index]

    def _term(
        self, term: Term, scope: set[str], conts: frozenset[str], takes: Takes
    ) -> None:
        self.need(atoms_of(term), scope)
        self._bind(binds(term))
        inner = scope | set(binds(term))
        match term:
            case Cont():
                self._bind(term.params)
                self._conts[term.name] = term.params
                outside = inner
                if term.name in self.waits:
                    outside, waiting = self.waits[term.name]
                    self.need((*outside, *waiting), inner)
                self._term(term.cont, {*outside, *term.params}, conts, takes)
                self._term(term.body, inner, conts | {term.name}, takes)
                return
            case Fix():
                for fun in term.functions:
                    self.function(fun.index, fun.body, inner)
            case Jump() | Call() | Apply() | Operate():
                self._call(term, scope, conts)
            case Return():
                self._alike(term.args, takes.gives, "a value")
            case Close():
                self._alike(term.env, self._known(term.function).env, "a closure")
            case _:
                pass
        for each in subterms(term):
            self._term(each, inner, conts, takes)

    def _call(
        self,
        term: Jump | Call | Apply | Operate,
        scope: set[str],
        conts: frozenset[str],
    ) -> None:
        given: tuple[Atom, ...] = (ANY_VALUE,)
        if isinstance(term, Call):
            called = self._known(term.function)
            self._alike(term.args, called.params, f"function {term.function}")
            self.need(called.live, scope)
            given = called.gives
        elif isinstance(term, Jump):
            given = term.args
        if term.cont is None:
            return
        if term.cont not in conts:
            raise IllFormed(f"continuation `{term.cont}` is not in scope")
        self._alike(given, self._conts[term.cont], f"`{term.cont}`")

    def _alike(
        self, given: tuple[Atom, ...], taken: tuple[Atom, ...], where: str
    ) -> None:
        if len(given) != len(taken):
            raise IllFormed(f"{len(given)} values for the {len(taken)} of {where}")
        for a, b in zip(given, taken, strict=True):
            if letter_of(b) not in ("x", letter_of(a)):
                raise IllFormed(f"`{a}` is not of the kind of `{b}` of {where}")

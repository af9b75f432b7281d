"""The checker of the intermediate form, run on the output of every pass.

Every variable is bound once and before it is used, every continuation that is called
is in scope, and every call has as many arguments as its function has variables.
"""

from retape.engines.vlad.compiler.ir._ir import (
    Apply,
    Call,
    Close,
    Cont,
    Fix,
    Fun,
    FunRef,
    Jump,
    Lowered,
    Operate,
    Quoted,
    Term,
    all_functions,
    atoms_of,
    binds,
    subterms,
)


class IllFormed(AssertionError):
    """A pass produced something that is no intermediate form: a bug of ours."""


def check(module: Lowered) -> Lowered:
    """Return the module, or say what is wrong with it."""
    checker = _Checker(module)
    for function in module.functions.values():
        checker.function(function, frozenset(function.env), frozenset())
    for entry in module.entries:
        if entry not in module.functions:
            raise IllFormed(f"entry {entry} is no function")
    return module


class _Checker:
    def __init__(self, module: Lowered) -> None:
        self.module = module
        self.bound: set[str] = set()
        self.functions = {fun.index: fun for fun in all_functions(module)}
        self.env_names: set[str] = set()

    def function(self, fun: Fun, scope: frozenset[str], conts: frozenset[str]) -> None:
        del conts
        self._bind(fun.params)
        self.term(fun.body, scope | set(fun.params), frozenset())

    def _bind(self, names: tuple[str, ...]) -> None:
        for name in names:
            if name in self.bound:
                raise IllFormed(f"`{name}` is bound twice")
            self.bound.add(name)

    def term(self, term: Term, scope: frozenset[str], conts: frozenset[str]) -> None:
        for atom in atoms_of(term):
            self._atom(atom, scope)
        self._bind(binds(term))
        inner = scope | set(binds(term))
        match term:
            case Cont():
                self._bind((term.param,))
                self.term(term.cont, inner | {term.param}, conts)
                self.term(term.body, inner, conts | {term.name})
            case Fix():
                for fun in term.functions:
                    self.function(fun, inner, conts)
                self.term(term.body, inner, conts)
            case _:
                self._calls(term, conts)
                for each in subterms(term):
                    self.term(each, inner, conts)

    def _atom(self, atom: object, scope: frozenset[str]) -> None:
        if isinstance(atom, str) and atom not in scope:
            raise IllFormed(f"`{atom}` is used where it is not bound")
        if isinstance(atom, FunRef) and self._known(atom.function).env:
            raise IllFormed(f"function {atom.function} is no constant")
        if isinstance(atom, Quoted) and atom.index >= len(self.module.quoted):
            raise IllFormed(f"there is no quoted datum {atom.index}")

    def _known(self, index: int) -> Fun:
        if index not in self.functions:
            raise IllFormed(f"there is no function {index}")
        return self.functions[index]

    def _calls(self, term: Term, conts: frozenset[str]) -> None:
        match term:
            case Jump() | Call() | Apply() | Operate():
                if term.cont is not None and term.cont not in conts:
                    raise IllFormed(f"continuation `{term.cont}` is not in scope")
        match term:
            case Call():
                given, taken = len(term.args), len(self._known(term.function).params)
            case Close():
                given, taken = len(term.env), len(self._known(term.function).env)
            case _:
                return
        if given != taken:
            raise IllFormed(f"{given} values for the {taken} of a function")

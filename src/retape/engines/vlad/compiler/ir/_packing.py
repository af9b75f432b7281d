"""Pass: frames of bounded size, so that code grows as the program does.

A frame holds what its continuation needs. Where many values wait for many calls, as in
a sum of 200 calls, each of 200 frames would hold up to 200 values. So where a
continuation needs more than a few values, the oldest of them are packed into an object,
which takes their place, and are taken out of it where they are used:

    cont j(v) = ... a ... in t    ->    let p = pack a b c d e f g h in
                                        cont j(v) = ... let a' = part 0 p in ... a' ...

An object may be packed in turn: what is taken out of n values is log n deep.
"""

from collections.abc import Iterator
from dataclasses import replace

from retape.engines.vlad.compiler.ir._ir import (
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
    Lowered,
    Match,
    Operate,
    Register,
    Return,
    Stop,
    Term,
    Tick,
    Uncons,
    atoms_of,
    binds,
    local_functions,
    terms_of,
)
from retape.engines.vlad.compiler.ir._liveness import LiveNames, Liveness

MOST = 16
"""Values that a frame holds; with more, the oldest are packed."""

PACK = 8
"""Values in a packed object."""

PackedPlace = tuple[Register, tuple[int, ...]]
"""Where a variable is: one that holds it, and the way to it through packed objects."""

Places = dict[Register, PackedPlace]
"""Those that are not in a variable of their own name."""


def pack_frames(module: Lowered) -> Lowered:
    """Bound the frames of every function."""
    live = Liveness(module)
    if all(len(names) <= MOST for names in live.conts.values()):
        return module
    packing = _Packing(live)
    functions = {i: packing.function(fun) for i, fun in module.functions.items()}
    return replace(module, functions=functions)


class _Packing:
    """One module's packing.

    Attributes:
        age: The order in which variables are bound.
        fixed: Variables that local functions read from registers: they stay there.
        returns: Continuations that a call returns to.
    """

    def __init__(self, live: Liveness) -> None:
        self.live = live
        self.age: dict[str, int] = {}
        self.fixed: set[str] = set()
        self.returns: set[str] = set()

    def function(self, fun: Fun) -> Fun:
        """A function of the module, with those inside it."""
        locals_ = list(local_functions(fun.body))
        for local in locals_:
            self.fixed |= self.live.functions[local.index]
        for body in (fun.body, *(local.body for local in locals_)):
            self.returns |= _returned_to(body)
        return self._function(fun)

    def _function(self, fun: Fun) -> Fun:
        self._bind((*fun.env, *fun.params))
        return replace(fun, body=self.term(fun.body, {}))

    def _bind(self, names: tuple[str, ...]) -> None:
        for name in names:
            self.age[name] = len(self.age)

    def _fresh(self) -> Register:
        name = Register(f"p.p{len(self.age)}")
        self._bind((name,))
        return name

    def term(self, term: Term, places: Places) -> Term:
        """The term, with the variables that it uses taken out of where they are."""
        for atom in atoms_of(term):
            if isinstance(atom, Register) and places.get(atom, (atom, ()))[1]:
                return self._take_out(atom, term, places)
        term = _renamed(term, places)
        self._bind(binds(term))
        match term:
            case Let() | Close() | Uncons() | Match() | Tick():
                return replace(term, body=self.term(term.body, places))
            case Fix():
                funs = tuple(self._function(fun) for fun in term.functions)
                return Fix(funs, self.term(term.body, places))
            case Cont():
                return self._cont(term, places)
            case Branch():
                then, other = (
                    self.term(term.then, places),
                    self.term(term.other, places),
                )
                return replace(term, then=then, other=other)
            case Jump() | Return() | Call() | Apply() | Operate() | Stop():
                return term

    def _take_out(self, name: Register, term: Term, places: Places) -> Term:
        root, (index, *rest) = places[name]
        var = self._fresh()
        inner = {**places, name: (var, tuple(rest))}
        return Let(var, f"part:{index}", (root,), -1, self.term(term, inner))

    def _cont(self, term: Cont, places: Places) -> Term:
        """Pack what waits for a call, until its frame is of a bounded size."""
        needed = self.live.conts[term.name]
        inside, packs = dict(places), []
        if term.name in self.returns:
            packs = list(self._packs(needed, inside))
        body = self.term(term.body, places)
        self._bind(term.params)
        result: Term = replace(term, cont=self.term(term.cont, inside), body=body)
        for var, parts in reversed(packs):
            result = Let(var, "pack", parts, -1, result)
        return result

    def _packs(
        self, needed: LiveNames, places: Places
    ) -> Iterator[tuple[Register, tuple[Register, ...]]]:
        """New objects and what they hold; updates where the variables are."""
        while True:
            roots = {places.get(name, (name, ()))[0] for name in needed}
            loose = sorted(roots - self.fixed, key=self.age.__getitem__)
            if len(loose) <= MOST:
                return
            parts = tuple(loose[:PACK])
            pack = self._fresh()
            for name in needed:
                root, way = places.get(name, (name, ()))
                if root in parts:
                    places[name] = pack, (parts.index(root), *way)
            yield pack, parts


def _returned_to(term: Term) -> set[str]:
    calls = (t for t in terms_of(term) if isinstance(t, Call | Apply | Operate))
    return {call.cont for call in calls if call.cont is not None}


def _renamed(term: Term, places: Places) -> Term:
    """The term with the variables' places, which are variables, for its atoms."""

    def name(atom: Atom) -> Atom:
        return (
            places[atom][0] if isinstance(atom, Register) and atom in places else atom
        )

    match term:
        case Let() | Call() | Jump() | Return():
            return replace(term, args=tuple(name(a) for a in term.args))
        case Operate(args=(a, b, c)):
            return replace(term, args=(name(a), name(b), name(c)))
        case Uncons() | Match():
            return replace(term, arg=name(term.arg))
        case Close():
            return replace(term, env=tuple(name(a) for a in term.env))
        case Branch():
            return replace(term, test=name(term.test))
        case Apply():
            return replace(term, fun=name(term.fun), arg=name(term.arg))
        case Fix() | Cont() | Tick() | Stop():
            return term

"""The intermediate form: continuation-passing style, as Fig. 20 leaves it.

    t ::= let x = op a ... in t          an operator; it may fail at its site
        | uncons (x, y) = a in t         take a pair apart, or fail
        | match a c; t                   fail unless a is the constant
        | close x = f[a ...] in t        a closure of a function and its variables
        | fix f(x ...) = t ... in t      functions that are only called: no closures
        | cont j(x ...) = t in t         a continuation that is only called
        | tick n; t                      n evaluation steps of Fig. 14
        | if a t t | j(a ...) | return a ... | stop
        | f(a ...) -> j | apply a a -> j | operator a a a -> j     calls; `-> j` or tail

Every variable is bound once. What an implementation in Fig. 24 would allocate, a
closure for each continuation, is here a frame only where a call is not a tail call.

In typed code (`typed/_lower_typed`) a variable has a kind, and a value is as many
variables as it has numbers: there are continuations and returns of several, and `stop`
is where typed code gives up a run. Elsewhere a value is one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from retape.engines.vlad.language._core import Constant, Pattern
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.language._externals import NumberedExternal


@dataclass(frozen=True, slots=True)
class Lit:
    """A real, a boolean or `()`."""

    value: "float | bool | tuple[()]"


NOTHING = Lit(())
"""`()`, which is also the empty list."""

FIRST_CODE = 3
"""The runtime's own frames come before those of compiled code."""


class Register(str):
    """A variable: its name, of which there is no other.

    Attributes:
        kind: x for any value; of typed code d (double), b (boolean), v (vector of
            doubles) or l (list of doubles).
    """

    __slots__ = ("kind",)

    kind: str

    def __new__(cls, name: str, kind: str = "x") -> "Register":
        made = super().__new__(cls, name)
        made.kind = kind
        return made


@dataclass(frozen=True, slots=True)
class Quoted:
    """A quoted pair: the index of a static object."""

    index: int


@dataclass(frozen=True, slots=True)
class FunRef:
    """The closure, a static object, of a function without free variables."""

    function: int


Atom: TypeAlias = Register | Lit | Quoted | FunRef


@dataclass(frozen=True, slots=True, eq=False)
class Let:
    var: Register
    op: str
    args: tuple[Atom, ...]
    site: int
    body: "Term"


@dataclass(frozen=True, slots=True, eq=False)
class Uncons:
    car: Register
    cdr: Register
    arg: Atom
    site: int
    whole: bool
    body: "Term"


@dataclass(frozen=True, slots=True, eq=False)
class Match:
    arg: Atom
    constant: Lit
    site: int
    whole: bool
    body: "Term"


@dataclass(frozen=True, slots=True, eq=False)
class Close:
    var: Register
    function: int
    env: tuple[Atom, ...]
    body: "Term"


@dataclass(frozen=True, slots=True, eq=False)
class Fix:
    functions: "tuple[Fun, ...]"
    body: "Term"


@dataclass(frozen=True, slots=True, eq=False)
class Cont:
    name: str
    params: tuple[Register, ...]
    cont: "Term"
    body: "Term"
    where: Where


@dataclass(frozen=True, slots=True, eq=False)
class Tick:
    steps: int
    body: "Term"


@dataclass(frozen=True, slots=True, eq=False)
class Branch:
    test: Atom
    then: "Term"
    other: "Term"


@dataclass(frozen=True, slots=True, eq=False)
class Jump:
    cont: str
    args: tuple[Atom, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Return:
    args: tuple[Atom, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    function: int
    args: tuple[Atom, ...]
    cont: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Apply:
    fun: Atom
    arg: Atom
    cont: str | None
    site: int


@dataclass(frozen=True, slots=True, eq=False)
class Operate:
    op: str
    args: tuple[Atom, Atom, Atom]
    cont: str | None
    site: int


@dataclass(frozen=True, slots=True, eq=False)
class Stop:
    pass


Term: TypeAlias = (
    Let
    | Uncons
    | Match
    | Close
    | Fix
    | Cont
    | Tick
    | Branch
    | Jump
    | Return
    | Call
    | Apply
    | Operate
    | Stop
)


@dataclass(slots=True, eq=False)
class Fun:
    """A function.

    Attributes:
        index: Its number.
        name: What the program calls it.
        pattern: How its argument is taken apart.
        params: A variable for each variable of the pattern.
        env: A variable for each free variable, if it is entered by a closure.
        site: What is told when an argument does not match.
    """

    index: int
    name: str | None
    pattern: Pattern
    params: tuple[Register, ...]
    env: tuple[Register, ...]
    site: int
    body: Term


@dataclass(frozen=True, slots=True)
class Site:
    """The source of a run-time fault: a place, and the call that did not match.

    `where` is that of a builtin if the fault's place is that of the last application.
    """

    where: Where
    name: str | None = None
    pattern: Pattern | None = None


@dataclass(slots=True)
class Lowered:
    """A compiled program.

    `entries` are the functions of its expressions, `definitions` those of its
    definitions.
    """

    functions: dict[int, Fun] = field(default_factory=dict)
    entries: list[int] = field(default_factory=list)
    definitions: dict[str, int] = field(default_factory=dict)
    quoted: list[Constant] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    externals: "tuple[NumberedExternal, ...]" = ()


def atoms_of(term: Term) -> tuple[Atom, ...]:
    """The atoms that a term's first part uses."""
    match term:
        case Let() | Operate() | Call() | Jump() | Return():
            return term.args
        case Uncons() | Match():
            return (term.arg,)
        case Close():
            return term.env
        case Branch():
            return (term.test,)
        case Apply():
            return (term.fun, term.arg)
        case Fix() | Cont() | Tick() | Stop():
            return ()


def letter_of(atom: Atom) -> str:
    """The kind of a value."""
    match atom:
        case Register():
            return atom.kind
        case Lit(value=bool()):
            return "b"
        case Lit(value=float()):
            return "d"
        case Lit():
            return "l"
    return "x"


def binds(term: Term) -> tuple[Register, ...]:
    """The variables that a term binds for its body."""
    match term:
        case Let() | Close():
            return (term.var,)
        case Uncons():
            return (term.car, term.cdr)
    return ()


def subterms(term: Term) -> tuple[Term, ...]:
    """The terms directly inside one, a fix's functions apart."""
    match term:
        case Let() | Uncons() | Match() | Close() | Fix() | Tick():
            return (term.body,)
        case Cont():
            return (term.cont, term.body)
        case Branch():
            return (term.then, term.other)
        case Jump() | Return() | Call() | Apply() | Operate() | Stop():
            return ()


def terms_of(term: Term) -> Iterator[Term]:
    """Every term in one, itself first; those of a fix's functions apart."""
    stack = [term]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(subterms(top)))


def all_functions(module: Lowered) -> Iterator[Fun]:
    """Every function, those of a fix included."""
    for function in list(module.functions.values()):
        yield function
        yield from local_functions(function.body)


def local_functions(term: Term) -> Iterator[Fun]:
    """The functions of every fix in a term, and of those in them."""
    stack = [term]
    while stack:
        top = stack.pop()
        if isinstance(top, Fix):
            yield from top.functions
            stack.extend(function.body for function in top.functions)
        stack.extend(subterms(top))


def entered(module: Lowered) -> set[int]:
    """The functions of closures that the program makes, and those that the host has."""
    found = set(module.definitions.values())
    for fun in all_functions(module):
        for term in terms_of(fun.body):
            if isinstance(term, Close):
                found.add(term.function)
            found |= {a.function for a in atoms_of(term) if isinstance(a, FunRef)}
    return found

"""The typed form: variables are doubles, booleans, vectors, lists, and marks.

    t ::= let x = op a ... in t | tick n; t | if a t t | stop
        | join j(x ...) = t in t | go j(a ...)
        | give a ...                                   a function's value
        | invoke f(a ...) [push frame]                 calls; no frame: a tail call

A tuple is its parts, and a mark, which tells it from others that are equal: a state's
reals are counted once where a tuple is in it twice. A list is a cell: a double and a
list, or none. `stop` is where the general way has
to go on. A frame is what waits for a call, word by word; a function that may be entered
from a state has one, too, for its own variables.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class Register:
    """A variable: `kind` is d (double), b (boolean), v (vector of doubles), l (list of
    doubles) or m (mark)."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class Nil:
    """The empty list, where lists go; where only it can be it is `()`, and no word."""


NIL = Nil()

TypedAtom: TypeAlias = Register | float | bool | Nil

Shape: TypeAlias = "TypedAtom | tuple[()] | Tuple"


@dataclass(frozen=True, slots=True)
class Tuple:
    """A pair as its parts."""

    mark: TypedAtom
    car: Shape
    cdr: Shape


def parts_of(shape: Shape) -> Iterator[TypedAtom]:
    """The words of a value, from left to right, a mark before its parts."""
    if isinstance(shape, Tuple):
        yield shape.mark
        yield from parts_of(shape.car)
        yield from parts_of(shape.cdr)
    elif not isinstance(shape, tuple):
        yield shape


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Values that wait on the stack, under a code."""

    code: int
    shapes: tuple[Shape, ...]

    @property
    def words(self) -> tuple[TypedAtom, ...]:
        return tuple(word for shape in self.shapes for word in parts_of(shape))


@dataclass(frozen=True, slots=True, eq=False)
class Do:
    var: Register
    op: str
    args: tuple[TypedAtom, ...]
    body: "TypedTerm"


@dataclass(frozen=True, slots=True, eq=False)
class Ticks:
    steps: int
    body: "TypedTerm"


@dataclass(frozen=True, slots=True, eq=False)
class IfTyped:
    test: TypedAtom
    then: "TypedTerm"
    other: "TypedTerm"


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """A continuation. `frame` is what waits for it, if a call returns to it.

    Attributes:
        live: What it needs from outside.
        cost: The most steps that it may take.
    """

    name: str
    params: Shape
    live: tuple[Register, ...]
    frame: Frame | None
    cost: int
    cont: "TypedTerm"
    body: "TypedTerm"


@dataclass(frozen=True, slots=True, eq=False)
class Go:
    join: str
    args: tuple[TypedAtom, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Give:
    args: tuple[TypedAtom, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Invoke:
    function: int
    args: tuple[TypedAtom, ...]
    push: Frame | None


@dataclass(frozen=True, slots=True, eq=False)
class Stop:
    pass


TypedTerm: TypeAlias = Do | Ticks | IfTyped | Join | Go | Give | Invoke | Stop


@dataclass(slots=True, eq=False)
class TypedFunction:
    """A function.

    Attributes:
        params: Variables that a call assigns.
        live: Variables that it takes from the function around it.
        resume: What it needs when it is entered from a state.
        enter: What it needs when a closure enters it, if one may.
        cost: The most steps of its first block.
        result: The shape of its value, of throw-away variables.
    """

    index: int
    name: str | None
    params: tuple[Register, ...]
    live: tuple[Register, ...]
    resume: Frame
    enter: Frame | None
    cost: int
    result: Shape
    body: TypedTerm


@dataclass(slots=True)
class TypedProgram:
    """The typed functions of a module by number, and its joins that have frames."""

    functions: dict[int, TypedFunction] = field(default_factory=dict)
    returns: dict[int, Join] = field(default_factory=dict)


def letter_of(atom: TypedAtom) -> str:
    """The kind of a value."""
    if isinstance(atom, Register):
        return atom.kind
    if isinstance(atom, Nil):
        return "l"
    return "b" if isinstance(atom, bool) else "d"


def inside(term: TypedTerm) -> tuple[TypedTerm, ...]:
    """The terms directly inside one."""
    match term:
        case Do() | Ticks():
            return (term.body,)
        case IfTyped():
            return (term.then, term.other)
        case Join():
            return (term.cont, term.body)
        case Go() | Give() | Invoke() | Stop():
            return ()


def terms_of(term: TypedTerm) -> Iterator[TypedTerm]:
    """Every term in one, itself first."""
    stack = [term]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(inside(top)))


def used_atoms(term: TypedTerm) -> tuple[TypedAtom, ...]:
    """The atoms that a term's first part uses."""
    match term:
        case Do() | Go() | Give():
            return term.args
        case Invoke():
            return (*term.args, *(term.push.words if term.push else ()))
        case IfTyped():
            return (term.test,)
        case Ticks() | Join() | Stop():
            return ()

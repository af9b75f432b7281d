"""Typed code: the intermediate form whose variables are doubles, booleans and rows.

A tuple is its parts. A list is a cell: a double and a list, or none. A frame is what
waits for a call, word by word; a function that may be entered from a state has one,
too, for its own variables.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from retape.engines.vlad.compiler.ir._check import Checker, Takes
from retape.engines.vlad.compiler.ir._ir import (
    Atom,
    Cont,
    Fun,
    Lowered,
    Register,
    Term,
)
from retape.engines.vlad.language._core import PConst

Shape: TypeAlias = "Atom | tuple[()] | Tuple"


@dataclass(frozen=True, slots=True)
class Tuple:
    """A pair as its parts."""

    car: Shape
    cdr: Shape


def parts_of(shape: Shape) -> Iterator[Atom]:
    """The words of a value, from left to right."""
    if isinstance(shape, Tuple):
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
    def words(self) -> tuple[Atom, ...]:
        return tuple(word for shape in self.shapes for word in parts_of(shape))


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """What there is to know of a continuation.

    Attributes:
        shape: The value that it takes.
        live: What it needs from outside.
        frame: What waits for it, if a call returns to it.
        cost: The most steps that it may take.
    """

    shape: Shape
    live: tuple[Register, ...]
    frame: Frame | None
    cost: int


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
    body: Term


@dataclass(slots=True)
class TypedProgram:
    """The typed functions of a module by number.

    Attributes:
        conts: What there is to know of continuations, by name.
        returns: Those that have frames, by code.
        codes: How many codes there are.
    """

    functions: dict[int, TypedFunction] = field(default_factory=dict)
    conts: dict[str, Waiting] = field(default_factory=dict)
    returns: dict[int, Cont] = field(default_factory=dict)
    codes: int = 0

    def pushed(self, cont: str) -> Frame:
        """What waits while a function is called that returns to a continuation."""
        frame = self.conts[cont].frame
        assert frame is not None, "a call returns to it"
        return frame

    @property
    def module(self) -> Lowered:
        """The functions as those of any module, to be shown."""
        return Lowered(
            {
                i: Fun(i, f.name, PConst(()), f.params, f.live, -1, f.body)
                for i, f in self.functions.items()
            }
        )

    def checked(self) -> "TypedProgram":
        """The program, or what is wrong with it."""
        taking = {
            i: Takes(f.params, f.live, tuple(parts_of(f.result)))
            for i, f in self.functions.items()
        }
        checker = Checker(taking)
        checker.waits = {
            name: (known.live, known.frame.words if known.frame else ())
            for name, known in self.conts.items()
        }
        for index, fun in self.functions.items():
            given = {*fun.params, *fun.live}
            checker.need(fun.resume.words, given)
            checker.function(index, fun.body, given)
        return self

"""Capsules of the interpreter and the hybrid as arrays of numbers, and back.

A capsule is a graph of tuples, closures and vectors over reals. It is written as a
program for a machine with a stack: each object after what it consists of, once; where
it is met again, by its number. Nothing in it is hidden, so everything can be written;
only numbers that carry derivatives belong to tapes of this process, and those are in no
capsule of an outermost derivative.
"""

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from retape._errors import UnsupportedError
from retape.engines.vlad.evaluators._codebook import CodeBook
from retape.engines.vlad.evaluators._machine import Capsule, EvaluatorMachine
from retape.engines.vlad.values._traversal import contents
from retape.engines.vlad.values._values import Closure, Value
from retape.engines.vlad.values._versioned_arrays import Version, vector

_REAL, _WHOLE, _ATOM, _CODE, _TUPLE, _CLOSURE, _VECTOR, _AGAIN = range(8)
_ATOMS = (None, False, True, (), "ended")


class Codec:
    """Packs and unpacks the capsules of one program."""

    def __init__(self, book: CodeBook) -> None:
        self._book = book

    def pack(self, capsule: Capsule) -> dict[str, Any]:
        """A capsule as a tree of arrays."""
        return {"mark": list(capsule.mark), **self.pack_values(_image_roots(capsule))}

    def unpack(self, tree: dict[str, Any]) -> Capsule:
        """The inverse of `pack`."""
        code, env, k = self._unpack_values(tree)
        read, written = tree["mark"]
        return Capsule(code, env, k, (read, written))

    def pack_values(self, roots: Sequence[Value]) -> dict[str, Any]:
        """Values as a tree of arrays."""
        numpy = load_numpy()
        writer = _Writer(self._book)
        writer.write(roots)
        return {
            "words": numpy.array(writer.words, dtype=numpy.int64),
            "reals": numpy.array(writer.reals, dtype=numpy.float64),
            "code": [list(place) for place in writer.places],
        }

    def _unpack_values(self, tree: dict[str, Any]) -> list[Value]:
        words = iter(tree["words"].tolist())
        reals = iter(tree["reals"].tolist())
        pieces = [self._book.piece((name, at)) for name, at in tree["code"]]
        stack: list[Value] = []
        made: list[Value] = []
        for kind, operand in zip(words, words, strict=True):
            if kind == _REAL:
                stack.append(next(reals))
            elif kind == _WHOLE:
                stack.append(operand)
            elif kind == _ATOM:
                stack.append(_ATOMS[operand])
            elif kind == _CODE:
                stack.append(pieces[operand])
            elif kind == _AGAIN:
                stack.append(made[operand])
            else:
                _build(kind, operand, stack)
                made.append(stack[-1])
        return stack


def _build(kind: int, size: int, stack: list[Value]) -> None:
    """Replace the topmost values by the object that consists of them."""
    parts = tuple(stack[len(stack) - size :])
    del stack[len(stack) - size :]
    if kind == _TUPLE:
        stack.append(parts)
    elif kind == _VECTOR:
        stack.append(vector(parts))
    else:
        stack.append(Closure(parts[0], parts[1:]))


class _Writer:
    """One image that is being written."""

    def __init__(self, book: CodeBook) -> None:
        self.words = array("q")
        self.reals = array("d")
        self.places: dict[tuple[str, int], int] = {}
        self._book = book
        self._numbers: dict[int, int] = {}

    def write(self, roots: Sequence[Value]) -> None:
        """Write each object after its contents, without recursion."""
        stack: list[Any] = list(reversed(roots))
        while stack:
            v = stack.pop()
            kind = type(v)
            if kind is _End:
                self._emit(v.kind, v.size)
                self._numbers[id(v.original)] = len(self._numbers)
            elif kind is float:
                self.reals.append(v)
                self._emit(_REAL, 0)
            elif kind is int:
                self._emit(_WHOLE, v)
            elif (kind is tuple and v) or kind is Closure or kind is Version:
                self._object(v, stack)
            elif hasattr(v, "where"):
                place = self._book.place(v)
                self._emit(_CODE, self.places.setdefault(place, len(self.places)))
            else:
                self._emit(_ATOM, _ATOMS.index(v))

    def _object(self, v: Value, stack: list[Any]) -> None:
        if id(v) in self._numbers:
            self._emit(_AGAIN, self._numbers[id(v)])
            return
        parts = contents(v)
        kind = _TUPLE
        if type(v) is Closure:
            kind, parts = _CLOSURE, (v.code, *parts)
        elif type(v) is Version:
            kind = _VECTOR
        stack.append(_End(v, kind, len(parts)))
        stack.extend(reversed(parts))

    def _emit(self, kind: int, operand: int) -> None:
        self.words.extend((kind, operand))


class _End:
    """The end of an object's contents."""

    __slots__ = ("original", "kind", "size")

    def __init__(self, original: Value, kind: int, size: int) -> None:
        self.original = original
        self.kind = kind
        self.size = size


def _image_roots(capsule: Capsule) -> tuple[Value, ...]:
    return capsule.code, capsule.env, capsule.k


class KeptMachine:
    """A machine whose cotangents, and with a `Codec` its capsules, are arrays.

    Args:
        machine: The machine.
        codec: Of its program.
        program: Which that is, and what runs it.
    """

    def __init__(
        self, machine: EvaluatorMachine, codec: Codec, program: tuple[str, str]
    ) -> None:
        self._machine = machine
        self._codec = codec
        self._program = program
        self.pack, self.unpack = codec.pack, codec.unpack
        self.length = machine.length
        self.start = machine.start
        self.advance = machine.advance
        self.nbytes = machine.nbytes

    def reverse(self, capsule: Capsule, steps: int, cotangent: Any | None) -> Any:
        """The machine's, with a cotangent that can be kept."""
        given = None if cotangent is None else cotangent.tolist()
        made = self._machine.reverse(capsule, steps, given)
        return load_numpy().array(made, dtype=float)

    def finish(self, cotangent: Any) -> tuple[Value, Any]:
        """The machine's."""
        return self._machine.finish(cotangent.tolist())

    def label(self) -> str:
        """The identity of the run: a program's digest, first state, cotangent."""
        engine, program = self._program
        state = _image_roots(self._machine.first)
        image = self._codec.pack_values((*state, self._machine.seed))
        total = blake2b(f"{program} {image['code']}".encode(), digest_size=16)
        total.update(image["words"].tobytes() + image["reals"].tobytes())
        return f"{engine} {total.hexdigest()}"


def load_numpy() -> Any:
    """NumPy, in whose format states are kept on disk."""
    try:
        import numpy
    except ImportError:
        raise UnsupportedError(
            "states are kept on disk in NumPy's format, and NumPy is not installed; "
            "`pip install numpy`"
        ) from None
    return numpy

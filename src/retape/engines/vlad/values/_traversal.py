"""Walks over values: as trees, where the program sees them; as graphs, in capsules.

To the program sharing is invisible: `(cons p p)` has two positions, each with its own
(co)tangent. A capsule is walked as the graph that it is, each object once, because a
state may share a list among many frames. Neither walk recurses.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from retape.engines.vlad.values._dual_and_taped import Dual, Taped
from retape.engines.vlad.values._values import Closure, Mismatch, Value, show_atom
from retape.engines.vlad.values._versioned_arrays import Version, vector

_LEAF = object()
_PAIR = object()


@dataclass(frozen=True, slots=True)
class _Vector:
    """The token of a vector, whose elements follow."""

    length: int


def flatten_tree(value: Value) -> tuple[list[Value], list[Any]]:
    """The reals of a tree from left to right, and its shape."""
    leaves: list[Value] = []
    shape: list[Any] = []
    stack = [value]
    while stack:
        v = stack.pop()
        kind = type(v)
        if kind is tuple and v:
            shape.append(_PAIR)
            stack.append(v[1])
            stack.append(v[0])
        elif kind is float or kind is Taped or kind is Dual:
            shape.append(_LEAF)
            leaves.append(v)
        elif kind is Closure:
            shape.append(v.code)
            stack.extend(reversed(v.env))
        elif kind is Version:
            items = v.items()
            shape.append(_Vector(len(items)))
            stack.extend(reversed(items))
        else:
            shape.append(v)
    return leaves, shape


def rebuild(shape: Sequence[Any], leaves: Sequence[Value]) -> Value:
    """The tree of a shape with the given reals: the inverse of `flatten_tree`."""
    stack: list[Value] = []
    at = len(leaves)
    for token in reversed(shape):
        if token is _LEAF:
            at -= 1
            stack.append(leaves[at])
        elif token is _PAIR:
            stack.append((stack.pop(), stack.pop()))
        elif type(token) is bool or type(token) is tuple:
            stack.append(token)
        elif type(token) is _Vector:
            stack.append(vector([stack.pop() for _ in range(token.length)]))
        else:
            env = tuple(stack.pop() for _ in range(token.size))
            stack.append(Closure(token, env))
    return stack[0]


def conform(name: str, role: str, value: Value, other: Value) -> list[Value]:
    """The reals of `other`, a (co)tangent, which must have the shape of `value`."""
    _, shape = flatten_tree(value)
    leaves, given = flatten_tree(other)
    for a, b in zip(shape, given, strict=False):
        if a is not b and a != b:
            raise Mismatch(
                f"`{name}`: the {role} does not have the shape of its primal: it has "
                f"{_token(b)} where the primal has {_token(a)}"
            )
    return leaves


def _token(token: Any) -> str:
    if token is _LEAF:
        return "a real"
    if token is _PAIR:
        return "a pair"
    if isinstance(token, _Vector):
        return f"a vector of {token.length}"
    if isinstance(token, (bool, tuple)):
        return f"`{show_atom(token)}`"
    return f"`#<procedure {token.name}>`" if token.name else "`#<procedure>`"


Leaf = Callable[[Value], Value]


def copy_graph(roots: Sequence[Value], leaf: Leaf) -> tuple[Value, ...]:
    """Copy tuples and closures, each once, with every real replaced.

    Tuples here are pairs, environments and continuation frames alike: anything else
    that one of them holds (an integer, a piece of code) is kept as it is. Reals are
    replaced position by position, in an order that depends on the graph alone.
    """
    memo: dict[int, Value] = {}
    done: list[Value] = []
    work: list[Any] = list(reversed(roots))
    while work:
        v = work.pop()
        kind = type(v)
        if kind is float or kind is Taped or kind is Dual:
            done.append(leaf(v))
        elif kind is _Exit:
            v.finish(done, memo)
        elif (kind is tuple and v) or kind is Closure or kind is Version:
            if id(v) in memo:
                done.append(memo[id(v)])
                continue
            parts = contents(v)
            work.append(_Exit(v, len(parts)))
            work.extend(reversed(parts))
        else:
            done.append(v)
    return tuple(done)


def contents(v: Value) -> Sequence[Value]:
    """The values directly inside a tuple, a closure or a vector."""
    if type(v) is tuple:
        return v
    return v.env if type(v) is Closure else v.items()


class _Exit:
    """The end of an object's contents in a walk."""

    __slots__ = ("original", "size")

    def __init__(self, original: Value, size: int) -> None:
        self.original = original
        self.size = size

    def finish(self, done: list[Value], memo: dict[int, Value]) -> None:
        original = self.original
        parts = tuple(done[len(done) - self.size :])
        del done[len(done) - self.size :]
        if type(original) is tuple:
            copy: Value = parts
        elif type(original) is Closure:
            copy = Closure(original.code, parts)
        else:
            copy = vector(parts)
        memo[id(original)] = copy
        done.append(copy)


def graph_size(roots: Sequence[Value]) -> int:
    """The bytes that the objects of a graph take, each counted once."""
    seen: set[int] = set()
    total = 0
    stack: list[Value] = list(roots)
    while stack:
        v = stack.pop()
        kind = type(v)
        if kind is Closure:
            total += 32
            stack.append(v.env)
        elif kind is tuple and v and id(v) not in seen:
            seen.add(id(v))
            total += 40 + 8 * len(v)
            stack.extend(v)
        elif kind is Version and id(v) not in seen:
            seen.add(id(v))
            items = v.items()
            total += 200 + 8 * len(items)
            stack.extend(items)
        elif kind is float:
            total += 24
    return total

"""Reverse mode over a derivative: one operation of the outer tape, of any length.

`checkpoint-*j` maps x and a cotangent y' to f(x) and J(x)^T y'. If the outer tape held
what the inner derivative computes, it would grow with the inner run, whatever the inner
plan. But the operator is its own adjoint: with cotangents a of f(x) and b of J(x)^T y',

    the cotangent of x is   J^T a + d/dx <J(x)^T y', b>  =  J^T a + (d/dx J(x)^T y') b
    the cotangent of y' is  J b

since second derivatives are symmetric; and that is the tangent of the operator itself
along (b, a). So the outer tape has a number for each real of the result and nothing
else, and its sweep runs the operator again, on dual numbers. (The paper's section 7.3
has the derivative as one step too; there it is taped.)

`j*` maps x and a tangent x' to f(x) and J(x) x'. With cotangents a and b of these two,

    the cotangent of x is   J^T a + d/dx <J(x) x', b>
    the cotangent of x' is  J^T b

and with a symbol e whose square is zero, both are in J(x + e x')^T (b + e a): reverse
mode of f on dual numbers, whose primal is the second, and whose tangent the first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from retape.engines.vlad.values._dual_and_taped import (
    Dual,
    Real,
    Tape,
    Taped,
    add,
    is_zero,
    of_highest_level,
)
from retape.engines.vlad.values._traversal import copy_graph, flatten_tree, rebuild
from retape.engines.vlad.values._values import Value

Second = Callable[[list[Real], list[Real]], tuple[list[Real], list[Real]]]
"""Cotangents of the operator's two results to those of its function and argument, and
of its seed."""


@dataclass(slots=True)
class EnclosingCall:
    """An application of a derivative to numbers of an outer tape.

    Attributes:
        tape: The tape.
        job: Function, argument and seed (or tangent) without that tape.
        inputs: The reals of the argument and the function, with it.
        seeds: The reals of the seed, with it.
        value: What the function gave, once the results are recorded.
    """

    tape: Tape
    job: tuple[Value, Value, Value]
    inputs: list[Real]
    seeds: list[Real]
    value: Value = None

    def record(self, value: Value, found: Value, second: Second) -> Value:
        """Put the results on the tape, with what propagates their adjoints."""
        first = len(self.tape.nodes)
        self.value = value
        value, values = self._on_tape(value)
        found, cotangents = self._on_tape(found)

        def propagate() -> None:
            by_value = [node.adjoint for node in values]
            by_found = [node.adjoint for node in cotangents]
            if any(not is_zero(each) for each in (*by_value, *by_found)):
                self._add(*second(by_value, by_found))

        self.tape.calls.append((first, propagate))
        return value, found

    def _on_tape(self, value: Value) -> tuple[Value, list[Taped]]:
        leaves, shape = flatten_tree(value)
        nodes = [self.tape.input(leaf) for leaf in leaves]
        return rebuild(shape, nodes), nodes

    def _add(self, inputs: list[Real], seeds: list[Real]) -> None:
        pairs = [*zip(self.inputs, inputs, strict=True)]
        for leaf, cotangent in [*pairs, *zip(self.seeds, seeds, strict=True)]:
            if type(leaf) is Taped and leaf.tape is self.tape:
                leaf.adjoint = add(leaf.adjoint, cotangent)


def enclosing_call(
    function: Value, argument: Value, seed: Value
) -> EnclosingCall | None:
    """The call as the innermost outer tape sees it.

    `None` if no outer derivative's numbers are in it, or if the innermost such
    derivative is of forward mode, which keeps nothing.
    """
    leaves, shape = flatten_tree(argument)
    roots = rebuild(shape, leaves), function
    inputs = _reals(roots)
    seeds, seed_shape = flatten_tree(seed)
    tape = _innermost((*inputs, *seeds))
    if tape is None:
        return None

    def strip(leaf: Real) -> Real:
        return leaf.primal if type(leaf) is Taped and leaf.tape is tape else leaf

    plain, applied = copy_graph(roots, strip)
    without = rebuild(seed_shape, [strip(leaf) for leaf in seeds])
    return EnclosingCall(tape, (applied, plain, without), inputs, seeds)


def _reals(roots: Sequence[Value]) -> list[Real]:
    """The reals of a graph, in the order in which a state's are counted."""
    found: list[Real] = []

    def note(leaf: Real) -> Real:
        found.append(leaf)
        return leaf

    copy_graph(roots, note)
    return found


def _innermost(leaves: Sequence[Real]) -> Tape | None:
    """The tape of the highest level; `None` if that is of forward mode."""
    top = of_highest_level(leaves)
    return top.tape if type(top) is Taped else None


def with_tangents(level: int, value: Value, tangents: Sequence[Real]) -> Value:
    """A tree with tangents; a real whose tangent is zero is a constant."""
    leaves, shape = flatten_tree(value)
    pairs = zip(leaves, tangents, strict=True)
    return rebuild(shape, [x if is_zero(dx) else Dual(level, x, dx) for x, dx in pairs])


def tangents_at(level: int, leaves: Sequence[Real]) -> list[Real]:
    """The tangents of reals; zero where one has none of this level."""
    return [y.tangent if type(y) is Dual and y.level == level else 0.0 for y in leaves]


def primal_at(level: int, value: Real) -> Real:
    """A real without its tangent at a level, if it has one."""
    return value.primal if type(value) is Dual and value.level == level else value

"""Analysis: what kind of value each variable holds, by unification.

    real | bool | unit | row (a vector of reals) | (kind . kind)
         | list (of reals: () or a real and a list) | mixed

What an operator takes and gives determines kinds, and what is passed on has one kind
everywhere. A variable that is used as two kinds is `mixed`, and a function with one is
left to boxed code. A kind that contains itself as what follows a real is a list.
Kinds are trusted within typed code only: what comes from outside is looked at when it
comes.
"""

from typing import TypeAlias

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
    Lit,
    Lowered,
    Match,
    Operate,
    Return,
    Stop,
    Term,
    Tick,
    Uncons,
    all_functions,
    terms_of,
)
from retape.engines.vlad.language._each import DIRECT_OPERANDS, each_of
from retape.engines.vlad.operators._row import ANY, REAL, ROW, TRUTH, Kind
from retape.engines.vlad.operators._table import CONS, IS_NULL, IS_PAIR, OPERATORS

UNIT, MIXED, LIST = "unit", "mixed", "list"

Signature: TypeAlias = tuple[tuple[Kind, ...], Kind]


def signature_of(op: str) -> Signature | None:
    """The kinds of an operator's operands, and of its value; none of another's.

    Examples:
        >>> signature_of("each:vd:0 1 *")
        (('row', 'real'), 'row')
    """
    each = each_of(op)
    if each is None:
        row = OPERATORS.get(op)
        return None if row is None or ANY in row.takes else (row.takes, row.gives)
    kinds: list[Kind] = [ROW if kind == "v" else REAL for kind in each.kinds]
    if len(kinds) > DIRECT_OPERANDS:
        *rest, listed = kinds
        for kind in reversed(rest):
            listed = (kind, listed)
        kinds = [listed]
    return tuple(kinds), REAL if each.is_sum else ROW


LIST_TESTS = (IS_NULL, IS_PAIR)
"""Operators that tell the empty list from others."""


class Node:
    """A kind that is not known yet, or that is the same as another's.

    Attributes:
        kind: What is known: a name, a pair of nodes, or nothing.
        empty: Whether some value of it is the empty list, or is asked whether it is.
    """

    __slots__ = ("empty", "kind", "same")

    def __init__(
        self, kind: "str | tuple[Node, Node] | None" = None, *, empty: bool = False
    ) -> None:
        self.kind, self.empty = kind, empty
        self.same: Node | None = None

    def end(self) -> "Node":
        node = self
        while node.same is not None:
            node = node.same
        if self is not node:
            self.same = node
        return node


def unify(a: Node, b: Node) -> None:
    """Make two kinds one."""
    pending = [(a, b)]
    while pending:
        x, y = (node.end() for node in pending.pop())
        if x is y:
            continue
        if x.kind is None:
            x, y = y, x
        y_kind = y.kind
        y.same = x
        x.empty |= y.empty
        if y_kind is None or y_kind == x.kind:
            continue
        if isinstance(x.kind, tuple) and isinstance(y_kind, tuple):
            pending.extend(zip(x.kind, y_kind, strict=True))
        else:
            x.kind = MIXED


def _node_of(kind: Kind) -> Node:
    if isinstance(kind, str):
        return Node(kind)
    return Node((_node_of(kind[0]), _node_of(kind[1])))


class Kinds:
    """The kinds of a module's variables."""

    def __init__(self, module: Lowered) -> None:
        self._variables: dict[str, Node] = {}
        self._results: dict[int, Node] = {}
        self._funs = {fun.index: fun for fun in all_functions(module)}
        self._conts: dict[str, str] = {}
        for fun in self._funs.values():
            self._function(fun)

    def of(self, name: str) -> Kind:
        """The kind of a variable; what nothing is known of is a real."""
        return _resolved(self._variable(name), [_MOST])

    def result(self, index: int) -> Kind:
        """The kind of a function's value."""
        return _resolved(self._result(index), [_MOST])

    def _variable(self, name: str) -> Node:
        return self._variables.setdefault(name, Node())

    def _result(self, index: int) -> Node:
        return self._results.setdefault(index, Node())

    def _atom(self, atom: Atom) -> Node:
        match atom:
            case str():
                return self._variable(atom)
            case Lit(value=bool()):
                return Node(TRUTH)
            case Lit(value=float()):
                return Node(REAL)
            case Lit():
                return Node(empty=True)
            case _:
                return Node(MIXED)

    def _function(self, fun: Fun) -> None:
        for term in terms_of(fun.body):
            self._term(term, fun)

    def _term(self, term: Term, fun: Fun) -> None:
        match term:
            case Let():
                self._let(term)
            case Uncons():
                parts = Node((self._variable(term.car), self._variable(term.cdr)))
                unify(parts, self._atom(term.arg))
            case Cont():
                (self._conts[term.name],) = term.params
            case Branch():
                unify(self._atom(term.test), Node(TRUTH))
            case Jump():
                self._deliver(term.cont, self._atom(*term.args), fun)
            case Return():
                self._deliver(None, self._atom(*term.args), fun)
            case Call():
                for param, arg in zip(
                    self._funs[term.function].params, term.args, strict=True
                ):
                    unify(self._variable(param), self._atom(arg))
                self._deliver(term.cont, self._result(term.function), fun)
            case Close():
                unify(self._variable(term.var), Node(MIXED))
            case Match() | Operate() | Fix() | Tick() | Apply() | Stop():
                pass

    def _let(self, term: Let) -> None:
        value = self._variable(term.var)
        if term.op == CONS:
            left, right = (self._atom(a) for a in term.args)
            unify(value, Node((left, right)))
        elif term.op in LIST_TESTS:
            unify(value, Node(TRUTH))
            unify(self._atom(term.args[0]), Node(empty=True))
        elif (signature := signature_of(term.op)) is not None:
            operands, result = signature
            unify(value, _node_of(result))
            for arg, kind in zip(term.args, operands, strict=False):
                unify(self._atom(arg), _node_of(kind))
        elif not term.op.startswith("fault:"):
            unify(value, Node(MIXED))

    def _deliver(self, cont: str | None, node: Node, fun: Fun) -> None:
        to = self._result(fun.index) if cont is None else self._param(cont)
        unify(to, node)

    def _param(self, cont: str) -> Node:
        return self._variable(self._conts[cont])


_MOST = 64
"""Pairs in a kind, beyond which it is taken for one without an end: a list."""


def _resolved(node: Node, left: list[int]) -> Kind:
    kind, empty = node.end().kind, node.end().empty
    if kind is None:
        return UNIT if empty else REAL
    if isinstance(kind, str):
        return MIXED if empty else kind
    if _is_list(node.end()):
        return LIST
    left[0] -= 1
    if left[0] < 0 or empty:
        return MIXED
    parts = _resolved(kind[0], left), _resolved(kind[1], left)
    return MIXED if MIXED in parts else parts


def _is_list(start: Node, left: int = _MOST) -> bool:
    """Whether what follows is the same again, some pairs further, and all are reals.

    What stands before such a list is one, too, where it is asked whether it is empty.
    """
    at = start
    for _ in range(_MOST):
        if not isinstance(at.kind, tuple):
            return False
        car, cdr = (part.end() for part in at.kind)
        if car.empty or car.kind not in (None, REAL):
            return False
        at = cdr
        if at is start:
            return True
    assert isinstance(start.kind, tuple), "looked at above"
    return start.empty and left > 0 and _is_list(start.kind[1].end(), left - 1)

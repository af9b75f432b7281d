"""The form of a tree: what it is made of, without its numbers.

A cotangent is a tree of the user's own, and each step's function returns another one.
The sum over a state's numbers that it stands for makes sense only if it keeps the form
of the states, so forms are compared at every step: a form is made of tuples, types and
dictionaries, and comparing two that are equal takes less than a tenth of a microsecond.

    a leaf with numbers     (shape, dtype)
    any other leaf          its type
    a container             (its type, {name or place: form})
"""

# The trees are of any shape, so strict checking would only ask for casts.
# pyright: standard

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from retape.storage._trees._arithmetic import epsilon_of
from retape.storage._trees._kinds import named_parts, opaque, take_apart
from retape.storage._trees._tree import PLAIN, is_of_framework, no_state

if TYPE_CHECKING:
    from collections.abc import Iterator

Form: TypeAlias = Any

UNKNOWN: Form = object
"""The form of what nobody has seen: everything is like it."""

_NUMBERS = (bool, int, float, complex)
_SEQUENCES = (tuple, list)
_PLAIN_TREES = (dict, tuple, list)
_ARRAYS: set[type] = set()
"""Types whose values have a shape and a dtype, as they are met: 0.2 us for an array of
NumPy's in the place of 0.7, at each step."""


def form_of(tree: Any) -> Form:
    """The form of a tree.

    Raises:
        StoreError: If something in it is none of what a state may consist of.

    Examples:
        >>> form_of({"x": 1.5, "y": (2, None)})
        (<class 'dict'>, {'x': <class 'float'>, 'y': (<class 'tuple'>, ...)})
    """
    kind = type(tree)
    if kind in _ARRAYS:
        return tree.shape, tree.dtype
    if kind in PLAIN:
        return kind
    if kind is dict:
        return dict, {name: form_of(part) for name, part in tree.items()}
    if kind in _SEQUENCES:
        return kind, dict(enumerate(map(form_of, tree)))
    if isinstance(tree, np.ndarray | np.generic):
        _ARRAYS.add(kind)
        return tree.shape, tree.dtype
    if opaque(kind) is not None:
        return kind
    if is_of_framework(tree):
        _ARRAYS.add(kind)
        return tree.shape, tree.dtype
    node = take_apart(tree)
    if node is None:
        raise no_state(tree)
    return kind, {name: form_of(part) for name, part in named_parts(node).items()}


def has_form(tree: Any, form: Form) -> bool:
    """Tell at once whether a tree has a form, where that is easily told.

    Of two steps that follow one another the forms are mostly the same: this looks at
    the parts in the place of making a form of them.

    Examples:
        >>> has_form({"x": 1.5}, form_of({"x": 2.5})), has_form(1.5, form_of((2, 3)))
        (True, False)
    """
    kind = type(tree)
    if kind in PLAIN:
        return form is kind
    if type(form) is not tuple:
        return False
    first, second = form
    if kind in _ARRAYS:
        return second is tree.dtype and first == tree.shape
    if first is not kind or kind not in _PLAIN_TREES or len(second) != len(tree):
        return False
    if kind is dict:
        return all(n in second and has_form(tree[n], second[n]) for n in tree)
    return all(map(has_form, tree, second.values()))


def fits(cotangent: Form, state: Form) -> bool:
    """Tell whether a cotangent has the shapes of a state; there may be more in it.

    Examples:
        >>> fits(form_of({"x": 1.0, "parameter": 2.0}), form_of({"x": 0.5}))
        True
        >>> fits(form_of((1.0, 2.0)), form_of(0.5))
        False
    """
    if not has_fraction(state):
        return True
    if is_leaf(state):
        return is_leaf(cotangent) and shape_of(cotangent) == shape_of(state)
    if is_leaf(cotangent) or not _alike(cotangent[0], state[0]):
        return False
    return all(
        fits(cotangent[1].get(name, type(None)), part)
        for name, part in state[1].items()
    )


def differences(
    before: Form,
    after: Form,
    state: Form,
    *,
    fitting: bool,
    fixed: bool,
    path: str = "",
) -> Iterator[str]:
    """What a cotangent before a step has that does not go with the one after it.

    Args:
        before: The form of what is judged.
        after: That of the cotangent of the state after the step.
        state: That of the state before the step, or `UNKNOWN`.
        fitting: Whether `after` fits the state after the step: `before` is then to fit
            the one before it, and else to be like `after`.
        fixed: Whether shapes that no state gives are those of `after`.
        path: Where in the tree these are.
    """
    if not has_fraction(state):
        return
    where = f"`cotangent{path}`" if path else "it"
    if is_leaf(after) or is_leaf(before):
        if not (is_leaf(after) and is_leaf(before)) and after is not type(None):
            yield f"{where} is {shown(before)}, and was {shown(after)} after the step"
            return
        yield from _leaf_differences(before, after, state, where, fitting, fixed)
        return
    if not _alike(before[0], after[0]):
        yield f"{where} is {shown(before)}, and was {shown(after)} after the step"
        return
    for name, part in after[1].items():
        inner = UNKNOWN if is_leaf(state) else state[1].get(name, UNKNOWN)
        at = f"{path}[{name!r}]"
        if name in before[1]:
            yield from differences(
                before[1][name], part, inner, fitting=fitting, fixed=fixed, path=at
            )
        elif has_fraction(inner):
            yield f"`cotangent{at}` is missing"


def _leaf_differences(
    before: Form, after: Form, state: Form, where: str, fitting: bool, fixed: bool
) -> Iterator[str]:
    own, was, of_state = shape_of(before), shape_of(after), shape_of(state)
    changed = f"{where} is {shown(before)}, and was {shown(after)} after the step"
    if after is type(None):
        return
    if own is None or was is None:
        if before is not after:
            yield changed
    elif fitting and of_state is not None:
        if own != of_state:
            yield f"{where} is {shown(before)}, and the state before it {shown(state)}"
    elif fixed and own != was and was:
        # What is a single number at first may be the zero that a sum begins with.
        yield changed
    if coarser(before, after) and (is_unknown(state) or coarser(before, state)):
        yield f"{changed}: digits are lost"


def coarser(one: Form, other: Form) -> bool:
    """Tell whether numbers of one type lose digits, or a part, of those of another."""
    if one in _NUMBERS or other in _NUMBERS or is_unknown(one) or is_unknown(other):
        return False  # Numbers of Python's take the type of what they meet.
    (_, mine), (_, theirs) = one, other
    if mine == theirs or epsilon_of(theirs) == 0:
        return False
    if epsilon_of(mine) == 0:
        return True
    is_less = "complex" in str(theirs) and "complex" not in str(mine)
    return is_less or epsilon_of(mine) > epsilon_of(theirs)


def has_fraction(form: Form) -> bool:
    """Tell whether there may be numbers with a fraction in a tree of this form."""
    if form is UNKNOWN:
        return True
    if not is_leaf(form):
        return any(map(has_fraction, form[1].values()))
    if isinstance(form, type):
        return form in (float, complex)
    return epsilon_of(form[1]) > 0


def is_unknown(form: Form) -> bool:
    """Tell whether nothing can be said of a leaf: it is no number, or not known."""
    return isinstance(form, type)


def is_leaf(form: Form) -> bool:
    """Tell a leaf from a container."""
    return isinstance(form, type) or not isinstance(form[0], type)


def shape_of(form: Form) -> tuple[int, ...] | None:
    """The shape of a leaf; `None` if it is no number."""
    if isinstance(form, type):
        return () if form in _NUMBERS else None
    return tuple(form[0]) if is_leaf(form) else None


def shown(form: Form) -> str:
    """A form in words."""
    if isinstance(form, type):
        return f"a `{form.__name__}`"
    if not is_leaf(form):
        names = ", ".join(map(repr, form[1]))
        return f"a `{form[0].__name__}` of {names or 'nothing'}"
    return f"of shape {tuple(form[0])} and type `{form[1]}`"


def _alike(one: type, other: type) -> bool:
    return one is other or (one in _SEQUENCES and other in _SEQUENCES)

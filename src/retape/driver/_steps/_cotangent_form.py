"""Whether what a user's functions return goes together, from step to step.

A cotangent may be any tree: gradients of parameters beside that of the state, a row for
each of several costs. What it may not do is change on its way back: a lost axis or item
is a wrong gradient that no error tells of. So its form is compared at each step with
the one after it and with the state's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from retape._errors import MachineError, StoreError
from retape.storage._trees._arithmetic import add_trees
from retape.storage._trees._form import (
    UNKNOWN,
    Form,
    differences,
    fits,
    form_of,
    has_form,
    is_leaf,
    shape_of,
    shown,
)


def looked_at(call: Callable[[Any], Any], value: Any, what: str, k: int) -> Any:
    """A tree copied, measured or seen; an error says whose it is.

    Args:
        call: From the tree.
        value: The tree.
        what: What it is, and what `k` counts: a text is made only of an error.
        k: The number of a step.

    Raises:
        StoreError: If something in it is none of what a state may consist of.
    """
    try:
        return call(value)
    except StoreError as error:
        raise type(error)(f"{what} {k}: {error}") from error


@dataclass(slots=True)
class CotangentForm:
    """The form of the cotangent that the last step has left, and of the state there.

    Attributes:
        form: That of the cotangent.
        state: That of the state of the same step, or `UNKNOWN`.
        fitting: Whether the cotangent has the shapes of the state, and what else it
            likes; `None` if it is not known.
    """

    form: Form = UNKNOWN
    state: Form = UNKNOWN
    fitting: bool | None = None

    def begin(self, cotangent: Any, state: Any) -> None:
        """Look at the cotangent of the last state."""
        self.form, self.state = form_of(cotangent), form_of(state)
        self.fitting = fits(self.form, self.state)

    def take_up(self, cotangent: Any) -> None:
        """Go on with a cotangent, which another process may have left."""
        if not has_form(cotangent, self.form):
            form = form_of(cotangent)
            self.form, self.state, self.fitting = form, UNKNOWN, None

    def of_state(self, state: Any) -> Form:
        """The form of a state, which is mostly that of the one after it."""
        return self.state if has_form(state, self.state) else form_of(state)

    def follow(self, cotangent: Any, state: Form, name: str, k: int) -> None:
        """Compare the cotangent of the state before step k with the one after it.

        Raises:
            MachineError: If it has lost something, or does not fit the state.
        """
        same = has_form(cotangent, self.form)
        if same and state is self.state:
            return
        try:
            form = self.form if same else form_of(cotangent)
        except StoreError as error:
            raise MachineError(f"`{name}` returned for step {k}: {error}") from error
        if form != self.form or state != self.state:
            self._compare(form, state, name, k)

    def _compare(self, form: Form, state: Form, name: str, k: int) -> None:
        fitting = self.fitting
        if fitting is None:
            fitting = state is not UNKNOWN and fits(self.form, state)
        fixed = state is not UNKNOWN and state == self.state
        for what in differences(form, self.form, state, fitting=fitting, fixed=fixed):
            raise MachineError(
                f"`{name}` returned for step {k} a cotangent of another form: {what}. "
                "Return the cotangent of the state before the step, with the shapes "
                "of that state and the type of numbers that it was given."
            )
        self.form, self.state = form, state
        if self.fitting is None and state is not UNKNOWN:
            self.fitting = fits(form, state)

    def add(self, cotangent: Any, more: Any, k: int) -> Any:
        """The cotangent that was looked at last, and what `cost_gradient` returned.

        Raises:
            MachineError: If they differ in form.
        """
        form = looked_at(form_of, more, "`cost_gradient` returned for k =", k)
        if form == self.form:
            return add_trees(cotangent, more)
        wrong = _cannot_be_added(self.form, form)
        if wrong:
            raise MachineError(
                f"`cost_gradient` returned for k = {k} something that cannot be "
                f"added to the cotangent: {wrong}. Return a cotangent of the same form "
                "as `seed` and `reverse_step` do."
            )
        total = add_trees(cotangent, more)
        self.form = form_of(total)
        return total


def _cannot_be_added(one: Form, other: Form, path: str = "") -> str:
    """Why a term of another form cannot be added; nothing if it can.

    A number of Python's can be added to an array: it is the same for all of its parts.
    """
    where = f"`{path}`" if path else "it"
    leaves = is_leaf(one), is_leaf(other)
    if all(leaves):
        if one is other:
            return ""
        shapes = shape_of(one), shape_of(other)
        plain = any(isinstance(form, type) for form in (one, other))
        if None not in shapes and (plain or shapes[0] == shapes[1]):
            return ""
    elif not any(leaves) and one[0] is other[0]:
        if one[1].keys() == other[1].keys():
            found = (
                _cannot_be_added(part, other[1][name], f"{path}[{name!r}]")
                for name, part in one[1].items()
            )
            return next(filter(None, found), "")
    return f"{where} is {shown(other)}, and the cotangent {shown(one)}"

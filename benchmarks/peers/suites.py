"""Which suites there are: their files, what is replaced, and what differs by design.

A module of a suite sees a stand-in for a package that it imports: the stand-in has
Retape's functions under the package's names, and everything else of the package.
Nothing outside of the suite's own modules sees it.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple


class Difference(NamedTuple):
    """Why a test fails by design."""

    reason: str
    says: str = ""
    """What its failure says: one that says something else is a failure all the same."""


@dataclass(frozen=True)
class Suite:
    """A part of another project's tests."""

    tag: str
    """Where its files are to be taken from: a tag of the project's repository."""
    files: tuple[str, ...]
    """Inside of the checkout."""
    replaced: Mapping[str, Callable[[], dict[str, Any]]]
    """By a package's name: what its stand-in has in the place of the original."""
    arguments: tuple[str, ...] = ()
    """For pytest."""
    differs: Mapping[str, Difference] = field(default_factory=dict)
    """What fails by design, by a part of a test's name."""


def all_of(reason: str, says: str, *tests: str) -> dict[str, Difference]:
    """One reason for several tests."""
    return dict.fromkeys(tests, Difference(reason, says))


class StandIn(types.ModuleType):
    """A package with some of its names replaced."""

    def __init__(self, package: types.ModuleType, names: dict[str, Any]) -> None:
        super().__init__(package.__name__, package.__doc__)
        self.__dict__.update(names)
        self.__dict__["_stands_for"] = package

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_stands_for"], name)


def stand_in(package: types.ModuleType, dotted: Mapping[str, Any]) -> StandIn:
    """A stand-in whose names may be those of submodules: `lax.scan`."""
    names: dict[str, Any] = {}
    inner: dict[str, dict[str, Any]] = {}
    for name, value in dotted.items():
        head, _, rest = name.partition(".")
        if rest:
            inner.setdefault(head, {})[rest] = value
        else:
            names[head] = value
    for head, rest in inner.items():
        names[head] = stand_in(getattr(package, head), rest)
    return StandIn(package, names)


def _equinox_loops() -> dict[str, Any]:
    import retape.equinox

    return {"while_loop": retape.equinox.while_loop, "scan": retape.equinox.scan}


def _diffrax_adjoint() -> dict[str, Any]:
    import diffrax

    import retape.diffrax

    def diffeqsolve(*args: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("adjoint", retape.diffrax.RetapeAdjoint())
        return diffrax.diffeqsolve(*args, **kwargs)

    return {"diffeqsolve": diffeqsolve}


def _jax_loops() -> dict[str, Any]:
    import retape.jax

    names = ("scan", "fori_loop", "while_loop")
    return {f"lax.{name}": getattr(retape.jax, name) for name in names}


def _jax_gradients() -> dict[str, Any]:
    import retape.jax

    names = ("grad", "value_and_grad", "vjp")
    return {name: getattr(retape.jax, name) for name in names}


REVERSED = all_of(
    "a loop whose number of steps is not known has a gradient here",
    "ValueError not raised",
    "testWhileGradError",
)
SUITES: dict[str, Suite] = {
    "equinox": Suite(
        tag="v0.13.8",
        files=("tests/test_while_loop.py", "tests/test_scan.py"),
        replaced={"equinox.internal": _equinox_loops},
        differs={
            # The last assertion of the test: values and gradients agree before it.
            "test_backward_checkpointed": Difference(
                "a step says once what it says, however often it is run", "in '0"
            ),
            **all_of(
                "Equinox's loop prints what it finds of its values, ours does not",
                "in ''",
                "test_symbolic_zero",
                "test_nondifferentiable_body2",
                "test_body_fun_grads",
                "test_trivial_vjp",
            ),
        },
    ),
    "diffrax": Suite(
        tag="v0.7.2",
        files=("test/test_vmap.py", "test/test_saveat_solution.py"),
        replaced={"diffrax": _diffrax_adjoint},
    ),
    "diffrax-events": Suite(
        tag="v0.7.2",
        files=("test/test_event.py", "test/test_adjoint.py"),
        arguments=("-k", "not against"),
        replaced={"diffrax": _diffrax_adjoint},
    ),
    "jax-loops": Suite(
        tag="jax-v0.10.2",
        files=("tests/lax_control_flow_test.py",),
        arguments=("-k", "Grad or Vjp or grad or vjp"),
        replaced={"jax": _jax_loops},
        differs=REVERSED,
    ),
    "jax-gradients": Suite(
        tag="jax-v0.10.2",
        files=("tests/lax_control_flow_test.py",),
        arguments=("-k", "Grad or Vjp or grad or vjp"),
        replaced={"jax": _jax_gradients},
        differs={
            **REVERSED,
            **all_of(
                "a function is traced whole, so that Python's `if` sees no numbers",
                "ConversionError",
                "testCondGrad",
                "testSwitchGrad",
            ),
            # Both branches stand in the lowered text; what XLA compiles has one.
            "test_platform_dependent_grad": Difference(
                "the text before compilation is searched", "False != True"
            ),
            "test_scan_vjp_forwards_extensive_residuals": Difference(
                "an attribute of JAX's own pull-back is read", "unpack"
            ),
        },
    ),
}

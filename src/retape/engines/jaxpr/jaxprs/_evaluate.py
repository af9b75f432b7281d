"""The one interpreter of jaxprs, over values of any domain.

Equation by equation, in order, each by a rule. What a value is, the rule decides: an
array or a tracer (`bind`, the standard meaning), an atom of the intermediate form, a
truth (activity), a range of integers. Whoever walks through a program in another order,
or wants the values of all its variables, takes an `Environment`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core
from jax.interpreters import partial_eval as pe

from retape.engines.jaxpr.jaxprs._jax_internals import as_written

Rule = Callable[[core.JaxprEqn, list[Any]], Sequence[Any]]
"""From an equation and the values of its inputs to those of its outputs."""


def bind(eqn: core.JaxprEqn, values: list[Any]) -> list[Any]:
    """Evaluate one equation, as it was written."""
    with as_written(eqn), eqn.ctx.manager:
        out = eqn.primitive.bind(*values, **eqn.primitive.get_bind_params(eqn.params))
    if eqn.primitive.name == "dim_as_value":
        # A symbol of `jax.export` is as wide as integers are where it is bound.
        aval: Any = eqn.outvars[0].aval
        return [lax.convert_element_type(out, aval.dtype)]
    return list(out) if eqn.primitive.multiple_results else [out]


def literal_value(literal: core.Literal) -> Any:
    """The number that a literal is."""
    return literal.val


class Environment:
    """The values of a program's variables.

    Args:
        literal: The value of a literal, where that is not its number.
    """

    __slots__ = ("literal", "values")

    def __init__(self, literal: Callable[[Any], Any] = literal_value) -> None:
        self.literal = literal
        self.values: dict[Any, Any] = {}

    def __contains__(self, var: Any) -> bool:
        return var in self.values

    def read(self, atom: Any) -> Any:
        """The value of a variable or of a literal."""
        if isinstance(atom, core.Literal):
            return self.literal(atom)
        return self.values[atom]

    def read_all(self, atoms: Iterable[Any]) -> list[Any]:
        """The values of some variables or literals, in order."""
        return [self.read(a) for a in atoms]

    def write(self, variables: Iterable[Any], values: Iterable[Any]) -> None:
        """Note a value for each of some variables."""
        self.values.update(zip(variables, values, strict=True))

    def run(self, eqn: core.JaxprEqn, rule: Rule = bind) -> None:
        """Evaluate one equation."""
        self.write(eqn.outvars, rule(eqn, self.read_all(eqn.invars)))


def begun(
    jaxpr: core.Jaxpr | core.ClosedJaxpr,
    args: Iterable[Any],
    consts: Iterable[Any] | None = None,
    env: Environment | None = None,
) -> Environment:
    """The environment before the first equation.

    Args:
        jaxpr: A program.
        args: The values of its inputs.
        consts: Those of its constants; by default the ones that a closed one holds.
        env: What they are written into; by default a new one, for arrays.
    """
    env = Environment() if env is None else env
    closed = isinstance(jaxpr, core.ClosedJaxpr)
    inner = jaxpr.jaxpr if closed else jaxpr
    held = jaxpr.consts if closed else ()
    env.write(inner.constvars, held if consts is None else consts)
    env.write(inner.invars, args)
    return env


def evaluate(
    jaxpr: core.Jaxpr | core.ClosedJaxpr,
    args: Iterable[Any],
    rule: Rule = bind,
    *,
    consts: Iterable[Any] | None = None,
    env: Environment | None = None,
) -> list[Any]:
    """The outputs of a program, each of its equations by `rule`.

    Args:
        jaxpr: A program.
        args: The values of its inputs.
        rule: What an equation means.
        consts: The values of its constants; by default the ones that it holds.
        env: Holds the values of all variables in the end; made if it is not given.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> jaxpr = jax.make_jaxpr(lambda x: 2 * jnp.sin(x))(1.0)
        >>> def depth(eqn, ins):
        ...     return [1 + max(ins)] * len(eqn.outvars)
        >>> evaluate(jaxpr, [0], depth, env=Environment(literal=lambda a: 0))
        [2]
    """
    env = begun(jaxpr, args, consts, env)
    inner = jaxpr.jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else jaxpr
    for eqn in inner.eqns:
        env.run(eqn, rule)
    return env.read_all(inner.outvars)


def restricted(
    fun: Callable[..., Any], values: Sequence[Any], at: Sequence[int]
) -> Callable[..., Any]:
    """`fun(*values)` as a function of the values at some positions alone.

    Examples:
        >>> restricted(divmod, [7, 2], [0])(9)
        (4, 1)
    """

    def of_some(*some: Any) -> Any:
        every = list(values)
        for i, value in zip(at, some, strict=True):
            every[i] = value
        return fun(*every)

    return of_some


def which(flags: Iterable[bool]) -> list[int]:
    """The positions of flags that are set.

    Examples:
        >>> which([True, False, True])
        [0, 2]
    """
    return [i for i, flag in enumerate(flags) if flag]


Pull = Callable[[Sequence[Any]], tuple[Any, ...]]
"""From cotangents of outputs to those of inputs."""


def vjp_by(
    fun: Callable[..., Any],
    values: Sequence[Any],
    by: Sequence[int],
    of: Sequence[int] | None = None,
) -> tuple[Sequence[Any], Pull]:
    """A function's outputs, and the pullback of some of them by some of its inputs.

    Args:
        fun: From values to a sequence of outputs.
        values: Its inputs.
        by: The positions of those that are moved.
        of: The positions of the outputs that cotangents come from; all by default.

    Examples:
        >>> outs, pull = vjp_by(lambda x, y: [x * y, y], [2.0, 3.0], by=[0], of=[0])
        >>> float(outs[0]), [float(d) for d in pull([1.0])]
        (6.0, [3.0])
    """

    def along(*some: Any) -> tuple[list[Any], Any]:
        outs = restricted(fun, values, by)(*some)
        return list(outs) if of is None else [outs[i] for i in of], outs

    _, pull, outs = jax.vjp(along, *(values[i] for i in by), has_aux=True)
    return outs, pull


def stored_by(
    fun: Callable[..., Any], types: Sequence[Any], by: Sequence[int]
) -> core.ClosedJaxpr:
    """The program whose results are what reverse mode stores of a function.

    Args:
        fun: From values to a sequence of outputs.
        types: The types of its inputs.
        by: The positions of those that are moved.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> x = jax.ShapeDtypeStruct((3,), jnp.float32)
        >>> stored_by(lambda x, y: [jnp.sin(x) * y], [x, x], by=[0]).out_avals
        [ShapedArray(float32[3]), ShapedArray(float32[3])]
    """

    def stored(*values: Any) -> list[Any]:
        return jax.tree.leaves(vjp_by(fun, values, by)[1])

    return jax.make_jaxpr(stored)(*types)


def jvp_by(
    fun: Callable[..., Any],
    values: Sequence[Any],
    by: Sequence[int],
    tangents: Sequence[Any],
) -> tuple[Any, Any]:
    """A function's outputs, and their tangents from those of some of its inputs."""
    along = restricted(fun, values, by)
    return jax.jvp(along, [values[i] for i in by], list(tangents))


def dce(jaxpr: core.ClosedJaxpr) -> core.ClosedJaxpr:
    """The program without dead code, with all its inputs."""
    used = [True] * len(jaxpr.jaxpr.outvars)
    slim, _ = pe.dce_jaxpr(jaxpr.jaxpr, used, instantiate=True)
    return core.ClosedJaxpr(slim, jaxpr.consts)


def dce_inputs(
    jaxpr: core.ClosedJaxpr,
    used: Sequence[bool] | None = None,
    *,
    keep: Sequence[bool] | bool = False,
) -> tuple[core.ClosedJaxpr, list[bool]]:
    """The program with those of its inputs only that its outputs need, and which.

    Args:
        jaxpr: A program.
        used: Which of its outputs to keep; all by default.
        keep: Which of its inputs are kept in any case.
    """
    wanted = [True] * len(jaxpr.jaxpr.outvars) if used is None else list(used)
    slim, needed = pe.dce_jaxpr(jaxpr.jaxpr, wanted, instantiate=keep)
    return core.ClosedJaxpr(slim, jaxpr.consts), list(needed)

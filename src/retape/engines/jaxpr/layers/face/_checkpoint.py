"""`checkpoint`: `jax.checkpoint`, which saves memory on the CPU, too."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ParamSpec, TypeVar, overload

import jax

from retape._errors import PlanError, UnsupportedError
from retape._warn import warn
from retape.engines.jaxpr.api._known_traces import Partial
from retape.engines.jaxpr.api._trace import FlatCall, Traced
from retape.engines.jaxpr.api._transform import NEEDS_NUMBERS, call_traced
from retape.engines.jaxpr.intake._flax import call_nnx, has_nnx, with_module
from retape.engines.jaxpr.jaxprs._target import platform
from retape.engines.jaxpr.layers.remat._flat_program import graph_of
from retape.engines.jaxpr.layers.remat._policy import Policy, Strategy, check_names
from retape.engines.jaxpr.layers.remat._run_segments import Stretch, run_stretches
from retape.engines.jaxpr.layers.remat._saves import saves_of
from retape.engines.jaxpr.layers.strategies._within_budget import as_policy
from retape.plan._base import Plan

P = ParamSpec("P")
R = TypeVar("R")


@overload
def checkpoint(
    fn: Callable[P, R],
    /,
    *,
    policy: Policy | Plan | None = None,
    prevent_cse: bool | Sequence[bool] = True,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Callable[P, R]: ...


@overload
def checkpoint(
    fn: Callable[..., R],
    first: Any,
    /,
    *args: Any,
    policy: Policy | Plan | None = None,
    prevent_cse: bool | Sequence[bool] = True,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    **kwargs: Any,
) -> R: ...


@overload
def checkpoint(
    fn: None = None,
    /,
    *,
    policy: Policy | Plan | None = None,
    prevent_cse: bool | Sequence[bool] = True,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> Callable[[Callable[P, R]], Callable[P, R]]: ...


@overload
def checkpoint(
    fn: Callable[..., R],
    /,
    *,
    policy: Policy | Plan | None = None,
    prevent_cse: bool | Sequence[bool] = True,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    **kwargs: Any,
) -> R: ...


def checkpoint(
    fn: Callable[..., Any] | None = None,
    /,
    *args: Any,
    policy: Policy | Plan | None = None,
    prevent_cse: bool | Sequence[bool] = True,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Iterable[str] = (),
    **kwargs: Any,
) -> Any:
    """Mark a function: in reverse it is run again, instead of being stored.

    `jax.checkpoint` with three things more. It saves memory on the CPU, where XLA
    merges the second run of a function outside a loop with the first. It takes
    policies that look at the whole function (`retape.jax.policies`). And
    `checkpoint(fn, x)` calls the marked function at once.

    Args:
        fn: The function; without it, a decorator is returned.
        *args: If there are any, the marked function is called with them.
        policy: What is kept: one of `retape.jax.policies`, or of
            `jax.checkpoint_policies`, or a budget such as `retape.within("2 GiB")`;
            by default the arguments alone.
        prevent_cse: `False` where the call is inside the body of a loop, in which
            nothing can be merged: `jax.checkpoint` is used as it is.
        static_argnums: Positions of arguments that are not traced, as in
            `jax.checkpoint`. What is no array is never traced.
        static_argnames: Names of keyword arguments that are not traced.
        **kwargs: Keyword arguments for the call.

    Returns:
        The marked function, or with `args` its value.

    Raises:
        PlanError: If `policy` is no policy, an option is unknown, or a call has not
            the arguments that `static_argnums` names.
        UnsupportedError: If `fn` cannot be called.
        BudgetError: When a derivative is taken, if a budget cannot be kept.

    Examples:
        >>> import jax, jax.numpy as jnp, retape.jax
        >>> @retape.jax.checkpoint
        ... def block(x):
        ...     return jnp.tanh(jnp.sin(x))
        >>> print(f"{jax.grad(block)(0.5):.4f}")
        0.7032
        >>> print(f"{retape.jax.checkpoint(jnp.sin, 0.5):.4f}")
        0.4794
    """
    mark = Marking.of(policy, static_argnums, static_argnames, prevent_cse=prevent_cse)
    if fn is None:
        if args or kwargs:
            raise PlanError(
                f"`checkpoint` has no function, and so nothing to call with "
                f"{[*args, *kwargs]}. Its options are policy, prevent_cse, "
                "static_argnums, static_argnames; arguments of a call follow the "
                "function."
            )
        return functools.partial(
            checkpoint,
            policy=mark.policy,
            prevent_cse=prevent_cse,
            static_argnums=static_argnums,
            static_argnames=static_argnames,
        )
    if not callable(fn):
        raise UnsupportedError(
            f"`checkpoint({fn!r})`: this cannot be called, so there is nothing to run "
            "again. Pass a function or a layer, then its arguments."
        )
    marked = mark(fn)
    return marked(*args, **kwargs) if args or kwargs else marked


@dataclass(frozen=True, slots=True)
class Marking:
    """How a function is marked.

    Attributes:
        policy: What is kept.
        numbers: Positions of arguments that are not traced.
        names: Names of keyword arguments that are not traced.
        prevent_cse: `False` where nothing can be merged.
    """

    policy: Policy | None
    numbers: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    prevent_cse: bool | Sequence[bool] = True

    @classmethod
    def of(
        cls,
        policy: Any,
        numbers: int | Sequence[int],
        names: str | Iterable[str],
        *,
        prevent_cse: bool | Sequence[bool] = True,
    ) -> Marking:
        """The same of what a user passes.

        Raises:
            PlanError: If `policy` is no policy.
        """
        return cls(
            as_policy(policy),
            (numbers,) if isinstance(numbers, int) else tuple(numbers),
            (names,) if isinstance(names, str) else tuple(names),
            prevent_cse,
        )

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The marked function; what it changes in modules of NNX is changed once."""
        of_arrays = self.of_arrays(fn)

        @functools.wraps(fn)
        def marked(*args: Any, **kwargs: Any) -> Any:
            whole, args_ = with_module(fn, args)
            if not has_nnx((args_, kwargs)):
                return of_arrays(*args, **kwargs)
            more = len(args_) - len(args)
            traced, args_, kwargs_ = self.traced_part(whole, args_, kwargs, more)
            alone = replace(self, numbers=(), names=())
            return call_nnx(traced, alone.of_arrays, args_, kwargs_)

        return marked

    def of_arrays(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        """The marked function of what has no state."""
        as_in_jax = jax.checkpoint(
            fn,
            policy=self.policy,
            prevent_cse=self.prevent_cse,
            static_argnums=self.numbers,
            static_argnames=self.names,
        )
        if self.prevent_cse is False and not isinstance(self.policy, Strategy):
            return as_in_jax

        def marked(*args: Any, **kwargs: Any) -> Any:
            free, args_, kwargs_ = self.traced_part(fn, args, kwargs)
            try:
                pieces, traced = call_traced(free, None, args_, kwargs_, marked=True)
            except NEEDS_NUMBERS:
                # To be refused, in JAX's words, by the name that the function has.
                return as_in_jax(*args, **kwargs)
            except UnsupportedError as error:
                out = as_in_jax(*args, **kwargs)
                _warn_as_in_jax(fn, self.policy, error)
                return out
            outs = self._run(name_of(fn), pieces, traced)
            return as_in_jax(*args, **kwargs) if outs is None else traced.result(outs)

        return marked

    def _run(self, name: str, pieces: FlatCall, traced: Traced) -> list[Any] | None:
        """The results of a function that was traced; `None` to mark it as JAX does."""
        policy = self.policy
        traced.act(pieces.leaves)
        graph, consts = graph_of(traced.program, len(traced.consts))
        check_names(policy, graph.jaxpr, f"`{name}`")
        values = [*consts, *traced.consts, *pieces.leaves]
        if isinstance(policy, Strategy):
            return policy.run(graph, values)
        saves = saves_of(graph.jaxpr, policy)
        if not saves.offloads:
            return run_stretches(graph, [Stretch(0, len(graph), saves=saves)], values)
        if platform() == "cpu":
            warn(_NOWHERE_TO_GO.format(name))
        return None

    def traced_part(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        behind: int = 0,
    ) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
        """The function of what is traced alone, and that.

        Args:
            fn: The function.
            args: Its arguments.
            kwargs: Those that are passed by name.
            behind: How many of the first arguments are not counted by a user.
        """
        numbers = [i + behind if i >= 0 else i for i in self.numbers]
        beyond = [i for i in numbers if not -len(args) <= i < len(args)]
        if beyond:
            raise PlanError(
                f"`static_argnums={self.numbers}` names positions that a call with "
                f"{len(args) - behind} positional arguments lacks: "
                f"{[i - behind if i >= 0 else i for i in beyond]}. Correct them, or "
                "use `static_argnames` for what is passed by name."
            )
        fixed = {i % len(args): args[i] for i in numbers}
        apart = {name: kwargs[name] for name in self.names if name in kwargs}
        return (
            Partial(fn, fixed, apart) if fixed or apart else fn,
            tuple(a for i, a in enumerate(args) if i not in fixed),
            {k: v for k, v in kwargs.items() if k not in apart},
        )


_NOWHERE_TO_GO = (
    "`checkpoint({})` has a policy that moves values to the host, and on the CPU the "
    "host's memory is the device's: nothing is saved outside the body of a loop. Save "
    "these values instead, as in `policies.names(save=[...])`."
)


def name_of(fn: Callable[..., Any]) -> str:
    """The name of a function, for messages."""
    return getattr(fn, "__qualname__", type(fn).__name__)


def _warn_as_in_jax(
    fn: Callable[..., Any], policy: Policy | None, error: UnsupportedError
) -> None:
    """Say that `jax.checkpoint` is used, and what that does not do."""
    lost = (
        "the policy is without effect, and all of it is run again"
        if isinstance(policy, Strategy)
        else "on the CPU nothing is saved outside the body of a loop"
    )
    warn(
        f"`checkpoint({name_of(fn)})` is `jax.checkpoint` here, so {lost}. The "
        f"reason: {error}"
    )

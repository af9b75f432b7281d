"""A compiled unit: the instances of functions that one call of one function needs.

A function is compiled once for each combination of types with which it is called: an
instance. Functions that it takes as arguments are part of the types, so every call is
of a known instance, and a closure is the tuple of what it takes from outside.
"""

import ast
import math
from dataclasses import dataclass, field, replace
from functools import partial
from types import FunctionType as PythonFunction
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from retape.engines.vlad.language._core import Global, Lambda
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.language._program import Program
from retape.engines.vlad.python.library._table import UNFAILING
from retape.engines.vlad.python.read._source import (
    MISSING,
    CalledFile,
    Parsed,
    parse_function,
)
from retape.engines.vlad.python.read._types import UNKNOWN, FunctionType, Type
from retape.engines.vlad.python.terms._core_builder import CoreBuilder

if TYPE_CHECKING:
    from retape.engines.vlad.python.expressions._expressions import Expressions

MAX_INSTANCES = 2_000
MAX_ROUNDS = 20


@dataclass(slots=True, eq=False)
class Nested:
    """A function defined inside another one: its definition, and where it stands.

    Attributes:
        group: The functions that it calls, and that call it, with itself: they take
            the same from outside.
    """

    parsed: Parsed
    group: "tuple[Nested, ...]" = field(default=(), repr=False)

    def __hash__(self) -> int:
        return id(self.parsed.node)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Nested):
            return False
        same_scope = other.parsed.lookup is self.parsed.lookup
        return other.parsed.node is self.parsed.node and same_scope


class Written(Nested):
    """A function of our library, as one call has it."""

    def __hash__(self) -> int:
        return hash((id(self.parsed.node), self._place))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Written)
            and self.parsed.node is other.parsed.node
            and self._place == other._place
        )

    @property
    def _place(self) -> tuple[int, int]:
        where = self.parsed.text.where(self.parsed.node)
        return id(where.source), where.offset


@dataclass(slots=True, eq=False)
class Instance:
    """A function with types.

    Attributes:
        name: The name of its definition.
        returns: The type of its value; unknown until a first way out has been seen.
        ways: The types that its ways out give, which one type has in common.
        tells: Whether a value comes as `OneOf` these.
        fresh: Whether arrays in its value are new, and nobody else's.
    """

    name: str
    returns: Type = UNKNOWN
    ways: tuple[Type, ...] = ()
    tells: bool = False
    fresh: bool = True
    done: bool = False
    used: bool = False


class Translate(Protocol):
    """Makes the definition of an instance of a function."""

    def __call__(
        self,
        unit: "Unit",
        parsed: Parsed,
        function: FunctionType,
        args: tuple[Type, ...],
        instance: Instance,
        /,
    ) -> Lambda: ...


PrintedPart = str | tuple[Type, str]
"""A text that is printed, or a number's type and format."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What one `print` prints."""

    parts: tuple[PrintedPart, ...]
    end: str

    @property
    def count(self) -> int:
        """How many numbers are in it."""
        return sum(not isinstance(part, str) for part in self.parts)


@dataclass(slots=True)
class Unit:
    """The definitions that have been made, and what of the outside they depend on.

    Attributes:
        translate: From an instance to its definition (`statements._instance`, which
            stands above this package).
        outside: Names of the outside that were read, with their values then.
        told: The types that have numbers, in a value that tells its own.
        raised: The exceptions that are raised, by their places.
        prints: What is printed, by number.
    """

    translate: Translate
    build: CoreBuilder = field(default_factory=CoreBuilder)
    definitions: dict[str, Lambda] = field(default_factory=dict)
    instances: dict[Any, Instance] = field(default_factory=dict)
    outside: dict[tuple[Any, str], Any] = field(default_factory=dict)
    told: list[Type] = field(default_factory=list)
    raised: dict[Where, tuple[type[BaseException], tuple[Any, ...]]] = field(
        default_factory=dict
    )
    prints: list[Printed] = field(default_factory=list)
    _parsed: dict[Any, Parsed] = field(default_factory=dict)
    _made_of: dict[PythonFunction, tuple[Any, ...]] = field(default_factory=dict)
    _attributes: dict[ModuleType | type, Any] = field(default_factory=dict)
    _count: int = 0

    def parsed(self, function: PythonFunction) -> Parsed:
        if function not in self._parsed:
            self._made_of[function] = _made_of(function)
            self._parsed[function] = parse_function(function)
        return self._parsed[function]

    def look_up(self, parsed: Parsed, name: str) -> Any:
        """The value of a name of the outside, which the unit then depends on."""
        value = parsed.lookup(name)
        if value is not MISSING:
            self.outside[parsed.lookup, name] = value
        return value

    def attribute(self, module: ModuleType | type, name: str) -> Any:
        """The value of a module's or a class's attribute; the unit depends on it."""
        value = getattr(module, name, MISSING)
        if value is not MISSING:
            reader = self._attributes.setdefault(module, partial(getattr, module))
            self.outside[reader, name] = value
        return value

    def is_current(self) -> bool:
        """Tell whether all that was read of the outside is still what it was."""
        # Loops without generators: this is asked before every call.
        for (lookup, name), value in self.outside.items():
            found = lookup(name)
            if found is not value and not _same(found, value):
                return False
        for function, (code, defaults, by_name) in self._made_of.items():
            if (
                function.__code__ is not code
                or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not by_name
            ):
                return False
        return True

    def instance(
        self,
        function: FunctionType,
        args: tuple[Type, ...],
        at: ast.AST,
        parsed: Parsed,
        *,
        tells: bool = False,
    ) -> Instance:
        """The instance for arguments of these types, which is made if there is none."""
        key = (function, args, tells)
        found = self.instances.get(key)
        if found is not None:
            found.used = True
            return found
        if len(self.instances) >= MAX_INSTANCES:
            parsed.text.refuse(
                at,
                f"more than {MAX_INSTANCES} instances of functions are needed; does a "
                "function call itself with ever other types?",
            )
        source = self._source(function)
        self._count += 1
        instance = Instance(f"{source.name}:{self._count}", tells=tells)
        self.instances[key] = instance
        for _ in range(MAX_ROUNDS):
            before = instance.returns, instance.fresh, instance.ways
            known = set(self.instances)
            instance.used = False
            lambda_ = self.translate(self, source, function, args, instance)
            self.definitions[instance.name] = lambda_
            after = instance.returns, instance.fresh, instance.ways
            if not instance.used or after == before:
                break
            for other in set(self.instances) - known:  # made with what was assumed
                del self.definitions[self.instances.pop(other).name]
        instance.done = True
        return instance

    def written(self, function: PythonFunction, place: Where) -> "Written":
        """A function of our library, whose faults are told where it is called."""
        parsed = self.parsed(function)
        if function.__name__ in UNFAILING:
            return Written(parsed)
        text = CalledFile(parsed.text.source, parsed.text.tree, place)
        return Written(replace(parsed, text=text))

    def number_of(self, type_: Type) -> float:
        """The number of a type, in a value that tells its own."""
        if type_ not in self.told:
            self.told.append(type_)
        return float(self.told.index(type_))

    def printed(self, what: Printed) -> int:
        """The number of what is printed."""
        if what not in self.prints:
            self.prints.append(what)
        return self.prints.index(what)

    def _source(self, function: FunctionType) -> Parsed:
        key = function.key
        return key.parsed if isinstance(key, Nested) else self.parsed(key)

    def call(self, where: Any, instance: Instance, args: list[Any]) -> Any:
        return self.build.call(where, Global(where, instance.name), args)

    def program(self, root: str) -> Program:
        return Program(dict(self.definitions), (), (root,))


class Terms:
    """Terms of one kind of expression; the owner makes those inside of them."""

    def __init__(self, owner: "Expressions") -> None:
        self._owner = owner
        self._build = owner.build

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        self._owner.refuse(node, message)


def _made_of(function: PythonFunction) -> tuple[Any, ...]:
    """What a function is made of; `%autoreload` puts other parts into it."""
    return function.__code__, function.__defaults__, function.__kwdefaults__


def _same(a: Any, b: Any) -> bool:
    """Tell whether a name of the outside still means the same."""
    if a is b:
        return True
    if type(a) is not type(b) or not isinstance(a, int | float):
        return False
    return a == b and math.copysign(1.0, a) == math.copysign(1.0, b)

"""Python's statements in the core language: every assignment a `let`, loops `letrec`.

    x = a; rest             (let (x' a) rest)
    if t: A else: B; rest   (letrec ((join (x ...) rest)) (if t A B)), A and B end in
                            a call of join with the variables that either one assigns
    while t: body; rest     (letrec ((loop (x ...) (if t body rest))) (loop x ...))
    break, continue         calls of what follows the loop, and of the loop
    return e                e, since everything stands at an end

A first pass over each piece finds types; terms are made afterwards, by functions, when
the types at the places where ways meet are known.
"""

import ast
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from retape.engines.vlad.language._core import (
    Const,
    Core,
    If,
    Lambda,
    Pattern,
    PConst,
    Prim,
    PVar,
    Var,
)
from retape.engines.vlad.language._diagnostics import Where
from retape.engines.vlad.python.read._names import (
    assigned,
    body_of,
    captured,
    changes,
    parameters,
)
from retape.engines.vlad.python.read._source import Parsed
from retape.engines.vlad.python.read._types import (
    INT,
    NONE,
    NUMBERS,
    UNKNOWN,
    ArrayType,
    FunctionType,
    NoCommonType,
    TupleType,
    Type,
    holds_arrays,
    join,
    kind_of_type,
)
from retape.engines.vlad.python.translate._arithmetic import fault
from retape.engines.vlad.python.translate._core_builder import nested_pattern, tuple_of
from retape.engines.vlad.python.translate._expressions import (
    Expressions,
    Slot,
    Variables,
)
from retape.engines.vlad.python.translate._unit import Instance, Nested, Unit

Emit = Callable[[], Core]
"""Makes a term, once all types are known."""

After = Callable[[Variables], Emit]
"""What follows a statement, given the variables there."""

MAX_PASSES = 30


@dataclass(slots=True)
class Meeting:
    """A place where ways meet: the variables of each way.

    Attributes:
        name: That of the function of what follows.
        envs: The variables of each way that comes here.
        variables: Those that differ between the ways: the function's parameters.
        inline: What follows, if only one way comes here: it needs no function.
    """

    name: str
    envs: list[Variables] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    inline: Emit | None = None

    def arrive(self, body: "Body", env: Variables, where: Where) -> Emit:
        """A way that ends here: a call with the variables' values."""
        self.envs.append(env)

        def emit() -> Core:
            if self.inline is not None:
                return self.inline()
            values = [Var(where, env[each].name) for each in self.variables]
            return body.build.call(where, Var(where, self.name), values)

        return emit


@dataclass(frozen=True, slots=True)
class Loop:
    """Where `continue` and `break` go."""

    again: After
    out: After


class Body(Expressions):
    """The statements of one instance of a function."""

    def __init__(self, unit: Unit, parsed: Parsed, instance: Instance) -> None:
        super().__init__(unit, parsed)
        self.instance = instance
        self.locals |= {*parameters(parsed.node), *assigned(body_of(parsed.node))}

    def block(
        self, nodes: Sequence[ast.stmt], env: Variables, after: After, loop: Loop | None
    ) -> Emit:
        """Statements, and what follows them."""
        if not nodes:
            return after(env)
        node, rest = nodes[0], nodes[1:]
        env = dict(env)

        def go(inner: Variables) -> Emit:
            return self.block(rest, inner, after, loop)

        match node:
            case ast.Assign():
                return self._assign(node, env, go)
            case ast.AnnAssign(value=value) if value is not None:
                copy = ast.copy_location(ast.Assign([node.target], value), node)
                return self._assign(copy, env, go)
            case ast.AugAssign():
                return self._augmented(node, env, go)
            case ast.If():
                return self._if(node, env, go, loop)
            case ast.While():
                return self._while(node, env, go)
            case ast.For():
                return self._for(node, env, go)
            case ast.Return():
                return self._return(node, env)
            case ast.Break() | ast.Continue():
                assert loop is not None
                return (loop.out if isinstance(node, ast.Break) else loop.again)(env)
            case ast.FunctionDef():
                return self._definition(node, env, go)
            case ast.Assert():
                return self._assert(node, env, go)
            case ast.Pass() | ast.Expr(value=ast.Constant()):
                return go(env)
            case ast.AnnAssign():
                return go(env)
        return self.refuse(node, _instead_of_statement(node))

    # assignments

    def _assign(self, node: ast.Assign, env: Variables, go: After) -> Emit:
        value, type_ = self.expr(node.value, env)
        fresh = self.fresh
        if len(node.targets) > 1 and holds_arrays(type_):
            self.refuse(node, "one array with several names; write `b = a.copy()`")
        if holds_arrays(type_) and not fresh:
            self.share(node.value, env)
        return self._bind(list(node.targets), node, (value, type_), fresh, env, go)

    def _bind(
        self,
        targets: list[ast.expr],
        node: ast.AST,
        operand: tuple[Core, Type],
        fresh: bool,
        env: Variables,
        go: After,
    ) -> Emit:
        """Bind targets to a value, one after the other."""
        target, *more = targets
        value, type_ = operand
        where = self.text.where(node)
        if isinstance(target, ast.Subscript):
            return self._set_item(target, operand, env, go)
        alone = not more and not fresh
        if alone and isinstance(target, ast.Name) and isinstance(value, Var):
            env[target.id] = Slot(value.name, type_)
            return go(env)
        pattern, env = self._pattern(target, type_, fresh, env)
        if more:
            assert isinstance(pattern, PVar)
            inner = self._bind(
                more, node, (Var(where, pattern.name), type_), False, env, go
            )
        else:
            inner = go(env)
        return lambda: self.build.let(where, pattern, value, inner())

    def _pattern(
        self, target: ast.expr, type_: Type, fresh: bool, env: Variables
    ) -> tuple[Pattern, Variables]:
        """A target as a parameter, with the variables that it binds."""
        if isinstance(target, ast.Name):
            name = self.build.fresh(target.id)
            owned = fresh and isinstance(type_, ArrayType)
            return PVar(name), {**env, target.id: Slot(name, type_, owned)}
        if isinstance(target, ast.Tuple | ast.List):
            if type_ is UNKNOWN:
                type_ = TupleType((UNKNOWN,) * len(target.elts))
            if not isinstance(type_, TupleType) or len(type_.items) != len(target.elts):
                self.refuse(
                    target,
                    f"{kind_of_type(type_)} does not unpack into "
                    f"{len(target.elts)} names",
                )
            parts: list[Pattern] = []
            for item, kind in zip(target.elts, type_.items, strict=True):
                part, env = self._pattern(item, kind, False, env)
                parts.append(part)
            return nested_pattern(parts), env
        return self.refuse(
            target,
            "a target is a variable, a tuple of them, or an item of an array; the "
            "attributes of objects are not compiled",
        )

    def _set_item(
        self,
        target: ast.Subscript,
        operand: tuple[Core, Type],
        env: Variables,
        go: After,
    ) -> Emit:
        """`a[i] = x`: the next version of an array that has no other name."""
        where = self.text.where(target)
        if not isinstance(target.value, ast.Name) or target.value.id not in env:
            self.refuse(target, "an item is assigned to an array that is a variable")
        name = target.value.id
        slot = env[name]
        if not isinstance(slot.type, ArrayType):
            if slot.type is UNKNOWN:
                return go(env)
            self.refuse(
                target, f"{kind_of_type(slot.type)} has no items to be assigned"
            )
        if not slot.owned:
            self.refuse(
                target,
                f"the array `{name}` may have another name, as the caller's, which "
                f"would see the change; write `{name} = {name}.copy()` before it",
            )
        value, _ = self.as_number(target, operand)
        fresh = self.build.fresh(name)
        held = self.build.fresh("value")
        changed = self.with_item(target, slot.name, Var(where, held), env)
        inner = go({**env, name: Slot(fresh, slot.type, True)})
        return lambda: self.build.let_var(
            where, held, value, self.build.let_var(where, fresh, changed, inner())
        )

    def with_item(
        self, target: ast.Subscript, array: str, value: Core, env: Variables
    ) -> Core:
        where = self.text.where(target)
        return self.arrays.with_item(target, Var(where, array), value, env)

    def _augmented(self, node: ast.AugAssign, env: Variables, go: After) -> Emit:
        target = node.target
        read: ast.expr
        if isinstance(target, ast.Name):
            read = ast.copy_location(ast.Name(target.id, ast.Load()), target)
        elif isinstance(target, ast.Subscript):
            read = ast.copy_location(
                ast.Subscript(target.value, target.slice, ast.Load()), target
            )
        else:
            return self.refuse(target, "attributes of objects are not compiled")
        left = self.expr(read, env)
        if isinstance(left[1], ArrayType):
            assert isinstance(target, ast.Name)
            if not env[target.id].owned:
                self.refuse(
                    node,
                    f"`{target.id}` changes in place an array that may have another "
                    f"name; write `{target.id} = {target.id} ...` without `=` in the "
                    "operator",
                )
        operand = self.apply_binary(node, node.op, left, self.expr(node.value, env))
        return self._bind([target], node, operand, self.fresh, env, go)

    # control

    def _if(self, node: ast.If, env: Variables, go: After, loop: Loop | None) -> Emit:
        where = self.text.where(node)
        test = self.condition(node.test, env)
        meeting = Meeting(self.build.fresh("join"))

        def arrive(inner: Variables) -> Emit:
            return meeting.arrive(self, inner, where)

        then = self.block(node.body, env, arrive, loop)
        other = self.block(node.orelse, env, arrive, loop)
        rest = self._rest(meeting, node, env, go)

        def emit() -> Core:
            return self._joined(
                meeting, where, rest, lambda: If(where, test, then(), other())
            )

        return emit

    def _rest(
        self, meeting: Meeting, node: ast.AST, before: Variables, go: After
    ) -> tuple[list[str], Emit] | None:
        """What follows a meeting, with names for the variables that differ there."""
        if not meeting.envs:
            return None
        if len(meeting.envs) == 1:
            meeting.inline = go(meeting.envs[0])
            return None
        env, changed = self._merged(meeting.envs, before, node)
        meeting.variables = changed
        names = [self.build.fresh(each) for each in changed]
        for each, name in zip(changed, names, strict=True):
            env[each] = replace(env[each], name=name)
        return names, go(env)

    def _joined(
        self,
        meeting: Meeting,
        where: Where,
        rest: tuple[list[str], Emit] | None,
        body: Emit,
    ) -> Core:
        if rest is None:
            return body()
        names, emit = rest
        return self.build.letrec(where, meeting.name, names, emit(), body())

    def _merged(
        self, envs: list[Variables], before: Variables, node: ast.AST
    ) -> tuple[Variables, list[str]]:
        """The variables that all ways have, and those that are new on one of them."""
        merged: Variables = {}
        changed: list[str] = []
        for each in envs[0]:
            slots = [env[each] for env in envs if each in env]
            if len(slots) < len(envs):
                continue
            slot = slots[0]
            for other in slots[1:]:
                slot = self._common(each, slot, other, node)
            known = before[each].name if each in before else None
            if any(other.name != known for other in slots):
                changed.append(each)
            merged[each] = slot
        return merged, changed

    def _common(self, name: str, a: Slot, b: Slot, node: ast.AST) -> Slot:
        try:
            type_ = join(a.type, b.type)
        except NoCommonType as error:
            return self.refuse(
                node, f"`{name}` is {error}; give it another name on one of them"
            )
        same = a.name == b.name
        natural = a.natural and b.natural and same
        return Slot(a.name, type_, a.owned and b.owned, natural)

    def _while(self, node: ast.While, env: Variables, go: After) -> Emit:
        if node.orelse:
            self.refuse(node, "`else` of a loop is not compiled; use a variable")
        always = isinstance(node.test, ast.Constant) and node.test.value is True

        def test(inner: Variables) -> Core | None:
            return None if always else self.condition(node.test, inner)

        return self._loop(node, node.body, test, None, env, go)

    def _for(self, node: ast.For, env: Variables, go: After) -> Emit:
        """`for i in range(...)` and `for x in array`, with a hidden counter."""
        if node.orelse:
            self.refuse(node, "`else` of a loop is not compiled; use a variable")
        where = self.text.where(node)
        start, stop, step, item = self._range(node, env)
        counter, limit = f"counter {where.offset}", f"limit {where.offset}"
        first, last = self.build.fresh("i"), self.build.fresh("stop")
        stride = self.build.fresh("step")
        stride_value, first_value = _constant(step), _constant(start)
        known = stride_value is not None and stride_value != 0.0
        upwards = known and stride_value is not None and stride_value > 0.0
        from_zero = first_value is not None and first_value >= 0.0
        env = {
            **env,
            counter: Slot(first, INT, natural=upwards and from_zero),
            limit: Slot(last, INT),
        }

        def test(inner: Variables) -> Core:
            i = Var(where, inner[counter].name)
            end, by = Var(where, last), Var(where, stride)
            up, down = Prim(where, "<", (i, end)), Prim(where, ">", (i, end))
            if known:
                return up if upwards else down
            return If(where, Prim(where, "positive?", (by,)), up, down)

        def advance(inner: Variables) -> tuple[str, Core]:
            i = Var(where, inner[counter].name)
            by = step if known else Var(where, stride)
            return counter, Prim(where, "+", (i, by))

        def enter(inner: Variables, rest: After) -> Emit:
            slot = inner[counter]
            if item is None:
                if not isinstance(node.target, ast.Name):
                    self.refuse(node.target, "the variable of a `range` is a name")
                inner = {**inner, node.target.id: slot}
                return rest(inner)
            value, type_ = item(Var(where, slot.name))
            return self._bind([node.target], node, (value, type_), False, inner, rest)

        emit = self._loop(
            node,
            node.body,
            test,
            advance,
            env,
            lambda e: go(_without(e, counter, limit)),
            enter,
        )

        def around() -> Core:
            inner = emit()
            if not known:
                wrong = fault(where, "`range` with a step of zero")
                zero = Prim(where, "zero?", (Var(where, stride),))
                inner = If(where, zero, wrong, inner)
                inner = self.build.let_var(where, stride, step, inner)
            inner = self.build.let_var(where, last, stop, inner)
            return self.build.let_var(where, first, start, inner)

        return around

    def _range(
        self, node: ast.For, env: Variables
    ) -> tuple[Core, Core, Core, Callable[[Core], tuple[Core, Type]] | None]:
        where = self.text.where(node)
        zero, one = Const(where, 0.0), Const(where, 1.0)
        iterated = node.iter
        if (
            isinstance(iterated, ast.Call)
            and self.static_object(iterated.func, env) is range
        ):
            parts = [self.number(arg, env) for arg in iterated.args]
            for (_, type_), arg in zip(parts, iterated.args, strict=True):
                if type_ not in (INT, UNKNOWN):
                    self.refuse(arg, "`range` takes ints, and this is a float")
            cores = [core for core, _ in parts]
            match cores:
                case [stop]:
                    return zero, stop, one, None
                case [start, stop]:
                    return start, stop, one, None
                case [start, stop, step]:
                    return start, stop, step, None
        core, type_ = self.expr(iterated, env)
        if isinstance(iterated, ast.Name) and iterated.id in assigned(node.body):
            self.refuse(
                iterated,
                f"`{iterated.id}` is assigned in the loop over its items; loop over "
                f"`range(len({iterated.id}))`",
            )
        if type_ == ArrayType(1) and isinstance(core, Var):
            stop, _ = self.arrays.length(node, (core, type_))
            return (
                zero,
                stop,
                one,
                lambda i: (Prim(where, "vector-ref", (core, i)), _FLOAT),
            )
        return self.refuse(
            iterated,
            "a loop goes over `range(...)` or over an array of one dimension that is a "
            "variable",
        )

    def _loop(
        self,
        node: ast.For | ast.While,
        body: list[ast.stmt],
        test: Callable[[Variables], Core | None],
        advance: Callable[[Variables], tuple[str, Core]] | None,
        env: Variables,
        go: After,
        enter: Callable[[Variables, After], Emit] | None = None,
    ) -> Emit:
        """A loop: its body is looked at until the types at its head are stable."""
        where = self.text.where(node)
        names = [each for each in assigned([node]) if each in env]
        counters = [] if advance is None else [advance(env)[0]]
        names += counters
        head = dict(env)
        passes = 0
        while True:
            inside = dict(head)
            for each in names:
                inside[each] = replace(head[each], name=self.build.fresh(each))
            again = Meeting(self.build.fresh("loop"), variables=names)
            out = Meeting(self.build.fresh("done"))
            check = test(inside)

            def turn(e: Variables, again: Meeting = again) -> Emit:
                return self._turn(again, e, where, advance)

            def leave(e: Variables, out: Meeting = out) -> Emit:
                return out.arrive(self, e, where)

            def inner(e: Variables, turn: After = turn, leave: After = leave) -> Emit:
                return self.block(body, e, turn, Loop(turn, leave))

            emit_body = enter(inside, inner) if enter else inner(inside)
            stable = True
            for each in names:
                for back in again.envs:
                    slot = self._common(each, head[each], back[each], node)
                    natural = head[each].natural and each in counters
                    slot = replace(slot, name=head[each].name, natural=natural)
                    stable &= slot == head[each]
                    head[each] = slot
            if stable:
                break
            passes += 1
            if passes == MAX_PASSES:
                self.refuse(node, "the types of this loop's variables do not settle")
        exit_ = None if check is None else leave(_only(inside, env))
        kept = set(env) if check is not None else None
        rest = self._rest(out, node, env, lambda e: go(_only(e, kept)))

        def emit() -> Core:
            inside_ = emit_body()
            if check is not None:
                assert exit_ is not None
                inside_ = If(where, check, inside_, exit_())
            first = [Var(where, env[each].name) for each in names]
            params = [inside[each].name for each in names]
            start = self.build.call(where, Var(where, again.name), first)
            looped = self.build.letrec(where, again.name, params, inside_, start)
            return self._joined(out, where, rest, lambda: looped)

        return emit

    def _turn(
        self,
        again: Meeting,
        env: Variables,
        where: Where,
        advance: Callable[[Variables], tuple[str, Core]] | None,
    ) -> Emit:
        """The end of a loop's body: back to its head."""
        if advance is None:
            return again.arrive(self, env, where)
        counter, value = advance(env)
        name = self.build.fresh("i")
        moved = {**env, counter: replace(env[counter], name=name)}
        call = again.arrive(self, moved, where)
        return lambda: self.build.let_var(where, name, value, call())

    def _return(self, node: ast.Return, env: Variables) -> Emit:
        if node.value is None:
            return self.finish(node, (Const(self.text.where(node), ()), NONE), True)
        operand = self.expr(node.value, env)
        fresh = self.fresh or self._is_owned(node.value, env)
        return self.finish(node, operand, fresh)

    def _is_owned(self, node: ast.expr, env: Variables) -> bool:
        if isinstance(node, ast.Name) and node.id in env:
            return env[node.id].owned
        return False

    def finish(self, node: ast.AST, operand: tuple[Core, Type], fresh: bool) -> Emit:
        """A way out of the function."""
        core, type_ = operand
        try:
            self.instance.returns = join(self.instance.returns, type_)
        except NoCommonType as error:
            self.refuse(node, f"the function returns {error}; make them alike")
        if holds_arrays(type_) and not fresh:
            self.instance.fresh = False
        return lambda: core

    def _definition(self, node: ast.FunctionDef, env: Variables, go: After) -> Emit:
        if node.decorator_list:
            self.refuse(node, "a decorator inside a compiled function is not compiled")
        where = self.text.where(node)
        value, type_ = self.nested(node, node.name, env)
        name = self.build.fresh(node.name)
        inner = go({**env, node.name: Slot(name, type_)})
        return lambda: self.build.let_var(where, name, value, inner())

    def _assert(self, node: ast.Assert, env: Variables, go: After) -> Emit:
        where = self.text.where(node)
        test, inner = self.condition(node.test, env), go(env)
        wrong = fault(where, "assertion failed")
        return lambda: If(where, test, inner(), wrong)


def _constant(core: Core) -> float | None:
    """The value of a constant number."""
    value = core.value if isinstance(core, Const) else None
    return value if isinstance(value, float) else None


def _without(env: Variables, *names: str) -> Variables:
    return {name: slot for name, slot in env.items() if name not in names}


def _only(env: Variables, names: Collection[str] | None) -> Variables:
    """The variables that have a value after a loop: those that had one before."""
    return {n: slot for n, slot in env.items() if names is None or n in names}


_FLOAT = NUMBERS[1]


def translate(
    unit: Unit,
    parsed: Parsed,
    function: FunctionType,
    args: tuple[Type, ...],
    instance: Instance,
) -> Lambda:
    """One instance of a function as a definition of the core language."""
    body = Body(unit, parsed, instance)
    where = parsed.text.where(parsed.node)
    _check_captures(parsed)
    env: Variables = {}
    patterns: list[Pattern] = []
    taken = [unit.build.fresh(name) for name, _ in function.captured]
    if function.captured:
        patterns.append(nested_pattern([PVar(name) for name in taken]))
    for unique, (name, type_) in zip(taken, function.captured, strict=True):
        if not name.startswith("default "):
            env[name] = Slot(unique, type_)
    itself = unit.build.fresh(parsed.name)
    if isinstance(function.key, Nested) and isinstance(parsed.node, ast.FunctionDef):
        env[parsed.name] = Slot(itself, function)
    for name, type_ in zip(parameters(parsed.node), args, strict=True):
        unique = unit.build.fresh(name)
        patterns.append(PVar(unique))
        env[name] = Slot(unique, type_)
    core = _translated(body, parsed, env)
    if itself in unit.build.free(core):
        captures = tuple_of(where, [Var(where, name) for name in taken])
        core = unit.build.let_var(where, itself, captures, core)
    pattern = nested_pattern(patterns) if patterns else PConst(())
    return Lambda(where, parsed.name, pattern, core, ())


def _translated(body: Body, parsed: Parsed, env: Variables) -> Core:
    """The whole body of a function."""
    node, where = parsed.node, parsed.text.where(parsed.node)
    if isinstance(node, ast.Lambda):
        operand = body.expr(node.body, env)
        return body.finish(node, operand, body.fresh)()
    nothing = Const(where, ()), NONE
    return body.block(
        node.body, env, lambda _: body.finish(node, nothing, True), None
    )()


def _check_captures(parsed: Parsed) -> None:
    """Refuse closures over variables that change: they would see the later value."""
    counts = changes(parsed.node)
    for name, inner in captured(parsed.node).items():
        if counts.get(name, 0) > 1:
            parsed.text.refuse(
                inner,
                f"`{name}` is assigned more than once, and this function would see its "
                f"latest value; take it as it is now by a default: `{name}={name}`",
            )


def _instead_of_statement(node: ast.stmt) -> str:
    match node:
        case ast.Try() | ast.Raise():
            return "exceptions are not compiled; return a flag, or use `assert`"
        case ast.With():
            return "`with` is not compiled; do this outside of the compiled function"
        case ast.Expr(value=ast.Call(func=ast.Name(id="print"))):
            return "printing is not compiled; return what is to be printed"
        case ast.Expr():
            return (
                "an expression whose value is not used does nothing here; assign it, "
                "or remove it"
            )
        case ast.Global() | ast.Nonlocal():
            return "variables of other functions are not changed; return their values"
        case ast.Import() | ast.ImportFrom():
            return "imports stand at the top of the file"
        case ast.ClassDef():
            return "classes are not compiled; use tuples"
        case ast.Delete():
            return "`del` is not compiled; leave it out"
        case ast.Match():
            return "`match` is not compiled; use `if` and `elif`"
        case _:
            return f"`{type(node).__name__}` is not compiled; see the subset's page"

"""The checker of the typed form, run on what the lowering makes.

Every variable is bound once and before it is used, and values go where ones of the same
kinds are expected: to joins, to functions, to what waits for a call.
"""

from retape.engines.vlad.compiler.typed._form import (
    Do,
    Give,
    Go,
    IfTyped,
    Invoke,
    Join,
    Register,
    Stop,
    Ticks,
    TypedAtom,
    TypedFunction,
    TypedProgram,
    TypedTerm,
    letter_of,
    parts_of,
    used_atoms,
)


class IllTyped(AssertionError):
    """The lowering produced something that is no typed form: a bug of ours."""


def check_typed(program: TypedProgram) -> TypedProgram:
    """Return the program, or say what is wrong with it."""
    checker = _TypedChecker(program)
    for function in program.functions.values():
        checker.function(function)
    return program


class _TypedChecker:
    def __init__(self, program: TypedProgram) -> None:
        self.program = program
        self.bound: set[Register] = set()
        self.joins: dict[str, Join] = {}

    def function(self, function: TypedFunction) -> None:
        self._bind(function.params)
        given = {*function.params, *function.live}
        self._need(function.resume.words, given, "resumes")
        self._term(function.body, given, function)

    def _bind(self, slots: tuple[Register, ...]) -> None:
        for slot in slots:
            if slot in self.bound:
                raise IllTyped(f"`{slot.name}` is bound twice")
            self.bound.add(slot)

    def _need(
        self, atoms: tuple[TypedAtom, ...], scope: set[Register], where: str
    ) -> None:
        for atom in atoms:
            if isinstance(atom, Register) and atom not in scope:
                raise IllTyped(f"`{atom.name}` {where} where it is not bound")

    def _term(
        self, term: TypedTerm, scope: set[Register], function: TypedFunction
    ) -> None:
        self._need(used_atoms(term), scope, "is used")
        match term:
            case Do():
                self._bind((term.var,))
                self._term(term.body, scope | {term.var}, function)
            case Ticks():
                self._term(term.body, scope, function)
            case IfTyped():
                self._kinds((term.test,), (False,), "a test")
                self._term(term.then, scope, function)
                self._term(term.other, scope, function)
            case Join():
                params = tuple(
                    p for p in parts_of(term.params) if isinstance(p, Register)
                )
                self._bind(params)
                self.joins[term.name] = term
                self._need(term.live, scope, "waits")
                self._term(term.cont, {*term.live, *params}, function)
                self._term(term.body, scope, function)
            case Go():
                if term.join not in self.joins:
                    raise IllTyped(f"`{term.join}` is not in scope")
                params = tuple(parts_of(self.joins[term.join].params))
                self._kinds(term.args, params, f"`{term.join}`")
            case Give():
                self._kinds(term.args, tuple(parts_of(function.result)), "a value")
            case Invoke():
                self._invoke(term, scope)
            case Stop():
                pass

    def _invoke(self, term: Invoke, scope: set[Register]) -> None:
        called = self.program.functions.get(term.function)
        if called is None:
            raise IllTyped(f"there is no typed function {term.function}")
        self._kinds(term.args, called.params, f"function {term.function}")
        self._need(called.live, scope, "is taken")
        if term.push is not None:
            join = self.program.returns.get(term.push.code)
            if join is None:
                raise IllTyped(f"nothing returns to frame {term.push.code}")
            wanted = tuple(parts_of(join.params))
            self._kinds(tuple(parts_of(called.result)), wanted, f"`{join.name}`")

    def _kinds(
        self, given: tuple[TypedAtom, ...], taken: tuple[TypedAtom, ...], where: str
    ) -> None:
        left = [letter_of(atom) for atom in given]
        right = [letter_of(atom) for atom in taken]
        if left != right:
            raise IllTyped(f"{left} for the {right} of {where}")

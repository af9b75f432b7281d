"""The three implementations behind one interface.

An `Engine` holds one program, ready to run: its expressions by number, its definitions
by name. Which implementation it is shows in the time it takes, and in nothing else.
"""

import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from retape._errors import BudgetError, UnsupportedError
from retape.driver import run as drive
from retape.driver._report import Report
from retape.engines.vlad.evaluators._cps_interpreter import Interpreter, Linker
from retape.engines.vlad.evaluators._derivatives import Operators
from retape.engines.vlad.evaluators._direct_evaluator import Converter, Hybrid
from retape.engines.vlad.evaluators._machine import EvaluatorMachine
from retape.engines.vlad.language._diagnostics import GaveUp, RunError
from retape.engines.vlad.language._program import Program, deep_recursion
from retape.engines.vlad.language._reader import show_constant
from retape.engines.vlad.session._disk import Disk, is_outermost
from retape.engines.vlad.session._options import DEFAULT_PLAN
from retape.engines.vlad.session._stages import (
    least_stage,
    tape_bytes,
    with_stage,
    within_room,
)
from retape.engines.vlad.values._externals import external_table
from retape.engines.vlad.values._looks import Look
from retape.engines.vlad.values._primitives import PURE, World
from retape.engines.vlad.values._values import Mismatch, Value
from retape.plan._base import Plan

if TYPE_CHECKING:
    from retape.driver._run import Outcome
    from retape.engines.vlad.compiler._pipeline import ProgramText
    from retape.engines.vlad.compiler.load._leaf_call import LeafCall
    from retape.engines.vlad.compiler.load._native import Counted

EngineName = Literal["interpreter", "hybrid", "compiled"]

TAPE_BYTES = {"interpreter": 200, "hybrid": 200, "compiled": 40}
"""What taping a step takes at most: one number on the tape."""


@dataclass(slots=True)
class Setting:
    """The surroundings of a run: plan, input, output, store.

    Attributes:
        plan: How `checkpoint-*j` divides its runs.
        read: Gives the next real of the input, or `None` at its end.
        write: Takes a real that the program prints.
        report: Called with the report of each run that a derivative divided.
        disk: Where such runs are kept, to be taken up again.
        cache: Whether compiled objects are kept for other processes.
    """

    plan: Plan
    read: Callable[[], float | None]
    write: Callable[[float], None]
    report: Callable[[Report], None] | None = None
    disk: Disk | None = None
    cache: bool = True


class Engine(Protocol):
    """A program that is ready to run."""

    def evaluate(self, index: int) -> tuple[Value, int]:
        """The value of an expression, and its evaluation steps."""
        ...

    def apply(self, name: str, argument: Value) -> Value:
        """A definition applied to a value."""
        ...

    def operate(self, operator: str, name: str, argument: Value, seed: Value) -> Value:
        """A derivative of a definition."""
        ...

    def keep(self, disk: Disk | None) -> None:
        """Keep the runs of `checkpoint-*j` from now on, or no longer."""
        ...


class EvaluatorEngine:
    """The interpreter, or the hybrid."""

    def __init__(self, program: Program, setting: Setting, name: EngineName) -> None:
        self.program = program
        self.setting = setting
        world = World(setting.read, setting.write)
        evaluator: Any = Interpreter(world) if name == "interpreter" else Hybrid(world)
        self.evaluator = evaluator
        self.operators = Operators(evaluator, self._drive, not program.externals)
        external = external_table(program.externals)
        table = {**PURE, **world.table(), **self.operators.table(), **external}
        linker = Linker if name == "interpreter" else Converter
        self.linker: Any = linker(program.definitions, table)
        self.tape_bytes = TAPE_BYTES[name]
        self.name = name
        self.keep(setting.disk)

    def _drive(self, machine: EvaluatorMachine) -> tuple[Value, Value]:
        result, report = drive(machine, self.setting.plan, tape_bytes=self.tape_bytes)
        if self.setting.report is not None:
            self.setting.report(report)
        return result

    def keep(self, disk: Disk | None) -> None:
        if disk is not None:
            raise UnsupportedError(
                f"`store=`: the {self.name} keeps no runs on disk; leave it out, or "
                'pass `engine="compiled"`'
            )

    def evaluate(self, index: int) -> tuple[Value, int]:
        with deep_recursion():
            code = self.linker.link(self.program.expressions[index])
        with no_cycles(), deep_recursion():  # `MAX_LEVEL` drivers deep
            done = self.evaluator.evaluate(code)
        return done.value, done.steps

    def apply(self, name: str, argument: Value) -> Value:
        with no_cycles(), deep_recursion():  # `MAX_LEVEL` drivers deep
            return self.evaluator.apply(self._function(name), argument).value

    def operate(self, operator: str, name: str, argument: Value, seed: Value) -> Value:
        operation = self.operators.table()[operator]
        with no_cycles(), deep_recursion():  # `MAX_LEVEL` drivers deep
            try:
                return operation(self._function(name), argument, seed)
            except Mismatch as error:
                raise RunError(str(error), None) from None

    def _function(self, name: str) -> Value:
        with deep_recursion():
            return self.linker.function(name)


class CompiledEngine:
    """The compiler's object, loaded."""

    tape_bytes = TAPE_BYTES["compiled"]

    def __init__(self, program: Program, setting: Setting) -> None:
        from retape.engines.vlad.compiler._pipeline import compile_program

        self.setting = setting
        self._program = program
        self.compiled = compile_program(program)
        self._begin(self.compiled.brief)

    def _begin(self, text: "ProgramText", *, arrays: bool = False) -> None:
        """Compile and load what has no state yet."""
        from retape.engines.vlad.compiler.load._c_compiler import build
        from retape.engines.vlad.compiler.load._native import Native

        checkpoint = weakref.WeakMethod(self._checkpoint)  # the native part is ours
        self._leaf_calls: dict[str, LeafCall] = {}
        self.native = Native(
            self.compiled,
            text.places,
            build(text, cache=self.setting.cache),
            self.setting.read,
            self.setting.write,
            self._program.externals,
            lambda *job: _called(checkpoint, *job),
        )
        self.native.arrays = arrays
        self.keep(self.setting.disk)

    def use_arrays(self) -> None:
        """Give vectors of reals out as NumPy arrays, from now on."""
        self.native.arrays = True

    def keep(self, disk: Disk | None) -> None:
        self.setting.disk = disk
        stage = typed = 0
        counted = self.setting.report is not None or disk is not None
        if not counted:
            stage = least_stage(self.setting.plan, typed=False)
            typed = least_stage(self.setting.plan, typed=True)
        # else the host is to know of every run
        by_us = self.setting.plan is DEFAULT_PLAN and not counted
        budget = self.setting.plan.budget or 0
        self.native.plan(stage, typed, waypoints=by_us, budget=budget)

    def _checkpoint(self, *job: int) -> int:
        from retape.engines.vlad.compiler.load._machine import (
            KeptNativeMachine,
            NativeMachine,
        )

        disk, plan = self.setting.disk, self.setting.plan
        counted = self.native.counted()
        tape = tape_bytes(plan, counted, self.tape_bytes)
        if disk and is_outermost(*self.native.derivatives()):
            kept = KeptNativeMachine(self.native, *job)
            plan = with_stage(plan, kept, counted, tape)
            result, report = _kept(kept, disk, plan, tape)
        elif plan.budget is not None:
            result, report = self._within(counted, *job)
        else:
            machine = NativeMachine(self.native, *job)
            plan = with_stage(plan, machine, counted, tape)
            result, report = drive(machine, plan, tape_bytes=tape)
        if self.setting.report is not None:
            self.setting.report(report)
        return result

    def _within(self, counted: "Counted", *job: int) -> "Outcome[int]":
        """A run under a budget; one that took more than it was counted to take is begun
        again, as if it had been counted to take twice as much."""
        from retape.engines.vlad.compiler.load._machine import FrozenNativeMachine

        machine, times = FrozenNativeMachine(self.native, *job), 1
        while True:
            plan = within_room(
                self.setting.plan, counted, machine.length(), self.tape_bytes, times
            )
            try:
                return drive(machine, plan)
            except BudgetError:
                times *= 2

    def evaluate(self, index: int) -> tuple[Value, int]:
        return self.native.evaluate(self.compiled.module.entries[index])

    def apply(self, name: str, argument: Value) -> Value:
        definition = self.compiled.module.definitions[name]
        try:
            return self.native.apply(definition, argument)
        except GaveUp:
            self._begin(self.compiled.whole, arrays=self.native.arrays)
            return self.native.apply(definition, argument)

    def ready(
        self, name: str, looks: tuple[Look, ...]
    ) -> Callable[[tuple[Any, ...]], Value]:
        """What calls a definition with numbers and arrays that look so."""
        from retape.engines.vlad.compiler.load._leaf_call import LeafCall

        if name not in self._leaf_calls:
            number = self.compiled.module.definitions[name]
            self._leaf_calls[name] = LeafCall(self.native, number)
        return self._leaf_calls[name].ready(looks)

    def operate(self, operator: str, name: str, argument: Value, seed: Value) -> Value:
        number = ("j*", "*j", "checkpoint-*j").index(operator)
        index = self.compiled.module.definitions[name]
        return self.native.operate(number, index, argument, seed)


def _kept(machine: Any, disk: Disk, plan: Plan, tape: int) -> "Outcome[Any]":
    """A run that is kept on disk.

    A program that is taken up again finds its earlier operators done.
    """
    return drive(
        machine,
        plan,
        tape_bytes=tape,
        store=disk.next(machine.pack, machine.unpack),
        label=machine.label(),
        reuse=True,
    )


def in_text(write: Callable[[str], None]) -> Callable[[float], None]:
    """What takes a real, of what takes it as a program of VLAD prints it."""
    return lambda value: write(show_constant(value))


def _called(method: "weakref.WeakMethod[Callable[..., int]]", *job: int) -> int:
    function = method()
    assert function is not None, "a program calls its host only while it is called"
    return function(*job)


def make_engine(name: EngineName, program: Program, setting: Setting) -> Engine:
    """An engine by its name."""
    if name == "compiled":
        return CompiledEngine(program, setting)
    return EvaluatorEngine(program, setting, name)


@contextmanager
def no_cycles() -> Iterator[None]:
    """Pause the collector of cycles: no value of the language is part of one."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

"""A compiled program in this process: its object loaded, its values in handles."""

import ctypes
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from ctypes import c_double, c_int, c_int32, c_int64
from typing import Any, NamedTuple, NoReturn

from retape._errors import BudgetError, UnsupportedError
from retape.engines.vlad.compiler._pipeline import Compiled
from retape.engines.vlad.compiler.ir._ir import all_functions
from retape.engines.vlad.compiler.load._faults import (
    GAVE_UP_TYPED,
    OVER_BUDGET,
    describe,
)
from retape.engines.vlad.compiler.load._interface import (
    EXTERNAL,
    FAULT,
    HOST,
    READ,
    WRITE,
    Request,
    SharedObject,
    declared,
    from_tokens,
    let_signals_in,
    load_numpy,
    request_of,
)
from retape.engines.vlad.evaluators._run_errors import chain
from retape.engines.vlad.language._diagnostics import GaveUp, RunError, Where
from retape.engines.vlad.language._externals import NumberedExternal
from retape.engines.vlad.values._values import Value

NURSERY_WORDS = 64 * 1024
NO_LIMIT = (2**63 - 1) // 2


class Counted(NamedTuple):
    """What a run took when its steps were counted.

    Attributes:
        tape: Bytes that a step puts on the tape of typed code; 0 if it is not of that.
        made: Bytes of the arrays that a step makes, and of their adjoints.
        dearest: Bytes of both that a step takes where the run takes most.
        grown: A bound of the words that the run held at once.
        state: Bytes of the largest state; 0 without a budget, as those that follow.
        room: Bytes that the run may take.
        holds_others: Whether it reverses other runs, which need room of their own.
        depth: The number of runs that are being reversed, this one included.
    """

    tape: float
    made: float
    dearest: float
    grown: int
    state: int
    room: int
    holds_others: bool
    depth: int


class Measured(NamedTuple):
    """What memory a program took.

    Attributes:
        tape: Bytes of its tapes, at most.
        live: Bytes of objects and tapes, at most.
        mapped: Bytes that it took from the system, at most.
        array_bytes: Bytes of all arrays that it ever made.
        arrays: How many there were.
        young: Bytes of all other objects.
        collections: How often dead ones were looked for.
    """

    tape: int
    live: int
    mapped: int
    array_bytes: int
    arrays: int
    young: int
    collections: int


Checkpoint = Callable[[int, int, int, int], int]
"""Handles of a first state, a cotangent and the value, and the length, to a result's
handle."""


class Native:
    """One loaded program, for one thread at a time; unloaded when it is dropped.

    Args:
        compiled: The program.
        places: Where the continuation of each frame's code stands.
        image: Its object.
        read: Gives the next real of the input, or `None` at its end.
        write: Takes a real that the program prints.
        externals: The Python functions that the program may call.
        checkpoint: Reverses what `checkpoint-*j` is applied to.
    """

    def __init__(
        self,
        compiled: Compiled,
        places: dict[int, Where],
        image: bytes,
        read: Callable[[], float | None],
        write: Callable[[float], None],
        externals: Sequence[NumberedExternal],
        checkpoint: Checkpoint,
    ) -> None:
        self.compiled, self._places = compiled, places
        self.names = {f.index: f.name for f in all_functions(compiled.module)}
        self.error: BaseException | None = None
        self._read, self._write, self._checkpoint = read, write, checkpoint
        self._externals = externals
        self.arrays = False
        self._outside: str | None = None
        self._freed: deque[int] = deque()
        self._object = SharedObject(image)
        self.dll: Any = declared(self._object.dll)
        self._callbacks = self._made_callbacks()
        request = Request(a=NURSERY_WORDS, b=0, c=int(bool(externals)))
        self.dll.vlad_begin(ctypes.byref(request), *self._callbacks)
        self._reraise = let_signals_in(self.dll)
        self._paused = c_int.in_dll(self.dll, "vlad_paused")

    def _made_callbacks(self) -> tuple[Any, ...]:
        """The host's side, which must not keep this object alive: it is theirs."""
        this: weakref.ref[Native] = weakref.ref(self)
        read = READ(lambda place: _alive(this)._host_read(place))
        write = WRITE(lambda value: _alive(this)._host_write(value))
        host = HOST(lambda *job: _alive(this)._host_checkpoint(*job))
        call = EXTERNAL(lambda *job: _alive(this)._host_external(*job))
        return read, write, host, call

    def __del__(self) -> None:
        library, self.dll = getattr(self, "dll", None), None
        if library is not None:
            library.vlad_end()
            self._object.close()

    # calls

    def call(self, name: str, **arguments: Any) -> Request:
        """Call the runtime; a fault of the program is raised."""
        return self._called(name, Request(**arguments))

    def _called(self, name: str, request: Request) -> Request:
        self.enter()
        if getattr(self.dll, f"vlad_{name}")(ctypes.byref(request)):
            self.fail()
        return request

    def enter(self) -> None:
        """Refuse a call in the middle of another one; free what waits to be freed."""
        if self._outside is not None:
            raise UnsupportedError(
                f"the external function `{self._outside}` called the program that it "
                "was called from, which is in the middle of a run; compile the program "
                "a second time for it"
            )
        if self._paused.value:
            raise UnsupportedError(
                "the handler of a signal called the program that it came in the middle "
                "of; compile the program a second time for it"
            )
        while self._freed:
            self.dll.vlad_free(self._freed.popleft())

    def free(self, handle: int) -> None:
        """Free a handle before the next call.

        Not at once: Python may drop a capsule in another thread than that which is in
        the program.
        """
        self._freed.append(handle)

    def marks(self) -> tuple[int, int]:
        """The positions reached in the input and the output."""
        request = Request()
        self.dll.vlad_marks(ctypes.byref(request))
        return request.t, request.u

    def derivatives(self) -> tuple[int, str]:
        """The number of derivatives in progress, and the outermost one."""
        request = Request()
        name = self.dll.vlad_outermost(ctypes.byref(request))
        return request.r, name.decode()

    def counted(self) -> Counted:
        """What the run to be reversed took when its steps were counted."""
        dearest = c_double()
        request = Request(reals=ctypes.pointer(dearest))
        self.dll.vlad_counted(ctypes.byref(request))
        steps = max(1, request.t)
        return Counted(
            request.r / steps,
            request.s / steps,
            dearest.value,
            request.u,
            state=request.a,
            room=request.b,
            holds_others=bool(request.c),
            depth=request.d,
        )

    def plan(self, steps: int, typed: int, *, waypoints: bool, budget: int) -> None:
        """Runs no longer than this are reversed as one stage, without a schedule.

        Those of typed code are tried as one stage up to another number of steps, before
        it is known how many they have. With `waypoints` the run that counts them may
        leave a few states on its way, at which advances of a sweep begin. A run that
        takes more than the `budget` ends with a `BudgetError`; 0 is none.
        """
        self.dll.vlad_plan(steps, typed, int(waypoints), budget)

    def note_peaks(self, *, exact: bool = False) -> None:
        """Forget the peaks; with `exact` all that is dead is collected before new ones
        of live bytes are noted."""
        self.dll.vlad_note_peaks(int(exact))

    def measured(self) -> Measured:
        """What memory the program took; what is dead is collected."""
        found = (c_int64 * len(Measured._fields))()
        self.call("measured", words=ctypes.addressof(found))
        return Measured(*found)

    def fail(self) -> NoReturn:
        """Raise what a call that failed left behind."""
        if self._reraise is not None:
            self._reraise()
        request = Request()
        operator = self.dll.vlad_fault(ctypes.byref(request)).decode()
        error, self.error = self.error, None
        if error is not None:
            raise error
        sites = self.compiled.module.sites
        if request.a == GAVE_UP_TYPED:
            raise GaveUp
        if request.a == OVER_BUDGET:
            raise BudgetError(
                "the run takes more memory than its plan's budget; pass a larger one"
            )
        waiting, values = self._chain(), Request()
        self.dll.vlad_culprits(ctypes.byref(values))
        culprits = self.exported(values)
        message = describe(request.a, operator, sites, request.b, culprits)
        raise RunError(message, self._place(request.b, request.c), waiting)

    def _place(self, site: int, last: int) -> Where | None:
        sites = self.compiled.module.sites
        for index in (site, last):
            if 0 <= index < len(sites) and sites[index].where.source.name != "builtin":
                return sites[index].where
        return None

    def _chain(self) -> list[Where]:
        codes = (c_int32 * 40)()
        count = self.dll.vlad_chain(codes, 40)
        places = self._places
        return chain(places[code] for code in codes[:count] if code in places)

    # values

    def exported(self, request: Request) -> Value:
        """The value that the runtime has exported last.

        A vector of reals is a `Version`, or with `arrays` a NumPy array.
        """
        tokens = (c_int32 * request.r)()
        reals = (c_double * max(1, request.s))()
        self.dll.vlad_exported(tokens, reals)
        return from_tokens(tokens, reals, request.s, self.names, as_arrays=self.arrays)

    def evaluate(self, function: int) -> tuple[Value, int]:
        """The value of a function without operands, and the steps."""
        done = self.call("evaluate", a=function)
        return self.exported(done), done.t

    def operate(
        self, operator: int, function: int, argument: Value, seed: Value
    ) -> Value:
        """A derivative of a function."""
        request = request_of((argument, seed))
        request.c, request.d = operator, function
        return self.exported(self._called("operate", request))

    def apply(self, definition: int, argument: Value) -> Value:
        """The value of a definition."""
        self.enter()
        request = request_of(argument)
        request.c = definition
        if self.dll.vlad_call(ctypes.byref(request)) == FAULT:
            self.fail()
        return self.exported(request)

    def pack(self, handle: int) -> Any:
        """A value as words for another process of the same program."""
        numpy = load_numpy()
        words = numpy.empty(self.call("pack", a=handle).r, dtype=numpy.uint64)
        self.dll.vlad_packed(words.ctypes.data)
        return words

    def unpack(self, words: Any) -> int:
        """The handle of a value that was packed."""
        words = load_numpy().ascontiguousarray(words)
        return self.call("unpack", a=len(words), words=words.ctypes.data).r

    # what the runtime asks of us

    def _host_read(self, place: Any) -> int:
        try:
            value = self._read()
        except BaseException as error:  # noqa: BLE001 - re-raised by `call`
            self.error = error
            return -1
        if value is None:
            return 0
        place[0] = value
        return 1

    def _host_write(self, value: float) -> int:
        try:
            self._write(value)
        except BaseException as error:  # noqa: BLE001 - re-raised by `call`
            self.error = error
            return -1
        return 0

    def _host_external(self, number: int, operands: Any, place: Any) -> int:
        external = self._externals[number]
        self._outside = external.name
        try:
            place[0] = external.function(*operands[: external.operands])
        except BaseException as error:  # noqa: BLE001 - re-raised by `call`
            self.error = error
            return -1
        finally:
            self._outside = None
        return 0

    def _host_checkpoint(self, *job: int) -> int:
        try:
            return self._checkpoint(*job)
        except GaveUp:
            return -2
        except BaseException as error:  # noqa: BLE001 - re-raised by `call`
            self.error = error
            return -1


def _alive(this: "weakref.ref[Native]") -> Native:
    native = this()
    assert native is not None, "a program calls its host only while it is called"
    return native

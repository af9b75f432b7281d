"""The reverse of one way through typed code, as straight C."""

from retape.engines.vlad.compiler.adjoint._emit_frames import ON_TAPE
from retape.engines.vlad.compiler.adjoint._emit_rows import reverse_each
from retape.engines.vlad.compiler.adjoint._names import AdjointPlaces, words_in
from retape.engines.vlad.compiler.ir._c_text import operator_text
from retape.engines.vlad.compiler.ir._ir import (
    NOTHING,
    Atom,
    Call,
    Jump,
    Let,
    Register,
    Return,
    letter_of,
)
from retape.engines.vlad.compiler.typed._derivatives import companion_of, partials_of
from retape.engines.vlad.compiler.typed._form import TypedProgram
from retape.engines.vlad.compiler.typed._recorded import Recorded
from retape.engines.vlad.compiler.typed._row_operations import (
    CELL,
    is_each,
)
from retape.engines.vlad.compiler.typed._ways import Passed, Way, Ways
from retape.engines.vlad.operators._partials import filled
from retape.engines.vlad.operators._table import (
    CAR,
    MAKE_VECTOR,
    MATRIX_PRODUCT,
    OWN_SET,
    VECTOR_DOT,
    VECTOR_REF,
    VECTOR_SET,
)

_HELD = {"d": "const double", "v": "const uint64_t", "l": "Cell *const"}
"""The types of what the tape has: of a row its trace."""


class WayReverse:
    """The reverse of one way: straight C.

    Args:
        program: The typed functions.
        ways: All ways.
        places: Where adjoints are between ways.
        way: This way.
        tape: What it records.

    Attributes:
        local: The adjoints of variables that the way binds, once they are not zero.
        zero: Adjoints that outlive the block and are zero here, unless added to.
    """

    def __init__(
        self,
        program: TypedProgram,
        ways: Ways,
        places: AdjointPlaces,
        way: Way,
        tape: Recorded,
    ) -> None:
        self.program, self.ways, self.places, self.names = (
            program,
            ways,
            places,
            places.names,
        )
        self.way, self.tape = way, tape
        self.lines: list[str] = []
        self.bound = {step.var for step in way.steps}
        self.local: set[Register] = set()
        self.zero: dict[Register, None] = {}

    def text(self) -> list[str]:
        """The lines of the case."""
        self._take()
        self._end()
        for step in reversed(self.way.steps):
            if isinstance(step, Passed):
                if step.var in self.local:
                    self._add(step.value, self.names.local_adjoint(step.var))
            else:
                self._step(step)
        for slot in self.zero:
            self._line(f"{self.names.adjoint(slot)} = 0.0;")
        return self.lines

    def _line(self, text: str) -> None:
        self.lines.append("    " + text)

    def before(self) -> list[str]:
        """What is on the tape once for a run of a loop's way."""
        lines, self.lines = self.lines, []
        self._from_tape(self.tape.fixed)
        lines, self.lines = self.lines, lines
        return lines

    def _take(self) -> None:
        """The values on the tape, and those that are computed of them."""
        self._from_tape(self.tape.kept)
        for step in self.tape.again:
            text = self._again(step)
            name = self.names.slot(step.var)
            kind = _HELD[step.var.kind]
            self._line(f"{kind} {name} = {text}; (void){name};")

    def _again(self, step: Let) -> str:
        return operator_text(
            step.op, *(self._atom(a) for a in (*step.args, NOTHING)[:2])
        )

    def _from_tape(self, kept: tuple[Register, ...]) -> None:
        if kept:
            self._line(f"tp -= {len(kept)};")
        for i, slot in enumerate(kept):
            name = self.names.slot(slot)
            kind, field = _HELD[slot.kind], ON_TAPE[slot.kind]
            self._line(f"{kind} {name} = tp[{i}].{field}; (void){name};")

    def _end(self) -> None:
        """The adjoints with which the way's end was left."""
        end = self.way.end
        match end:
            case Jump():
                join = self.ways.joins[end.cont]
                self._outlived(self.program.conts[join.name].live)
                self._moved(join.params, end.args)
            case Return():
                for i, arg in enumerate(end.args):
                    if letter_of(arg) == "d":
                        self._add(arg, self.places.returned_part(i))
            case Call():
                called = self.program.functions[end.function]
                self._outlived(called.live)
                moved = self._take_params(called.params)
                if end.cont is not None:
                    words = self.program.pushed(end.cont).words
                    self._line(f"ap -= {words_in(words) + 1};")
                    for at, slot in self.places.on_stack(words):
                        self._add(slot, f"ap[{at}]")
                self._give_params(moved, called.params, end.args)

    def _outlived(self, live: tuple[Register, ...]) -> None:
        """Variables that the way binds and the next block uses, too."""
        for slot in live:
            if slot in self.bound and slot in self.places.crossing:
                outer = self.names.adjoint(slot)
                self.local.add(slot)
                name = self.names.local_adjoint(slot)
                self._line(f"double {name} = {outer}; (void){name};")
                self.zero[slot] = None

    def _moved(self, params: tuple[Atom, ...], args: tuple[Atom, ...]) -> None:
        self._give_params(self._take_params(params), params, args)

    def _take_params(self, params: tuple[Atom, ...]) -> dict[Atom, str]:
        moved: dict[Atom, str] = {}
        for param in params:
            if isinstance(param, Register) and param in self.places.crossing:
                name = moved[param] = f"x{len(moved)}"
                outer = self.names.adjoint(param)
                self._line(f"const double {name} = {outer}; (void){name};")
                self.zero[param] = None
        return moved

    def _give_params(
        self,
        moved: dict[Atom, str],
        params: tuple[Atom, ...],
        args: tuple[Atom, ...],
    ) -> None:
        for param, arg in zip(params, args, strict=True):
            if param in moved:
                self._add(arg, moved[param])

    def _add(self, atom: Atom, text: str) -> None:
        """Add to the adjoint of a variable."""
        if not isinstance(atom, Register) or atom not in self.places.useful:
            return
        if atom in self.bound:
            name = self.names.local_adjoint(atom)
            if atom in self.local:
                self._line(f"{name} += {text};")
            else:
                self.local.add(atom)
                self._line(f"double {name} = {text}; (void){name};")
        elif atom in self.zero:
            del self.zero[atom]
            self._line(f"{self.names.adjoint(atom)} = {text};")
        else:
            self._line(f"{self.names.adjoint(atom)} += {text};")

    def _step(self, step: Let) -> None:
        if step.op == VECTOR_SET:
            row, at, value = step.args
            place = f"adjoint_of({self._atom(row)})[(uint32_t){self._atom(at)}]"
            self._add(value, place)
            self._line(f"{place} = 0.0;")
        elif step.op == OWN_SET:
            self._own_set(step)
        elif step.op == MATRIX_PRODUCT:
            _, columns, a, b = (self._atom(arg) for arg in step.args)
            made = self.names.slot(step.var)
            self._line(f"row_product_back({made}, {columns}, {a}, {b});")
            self._line(f"row_ends({made});")
        elif step.op == MAKE_VECTOR:
            self._add(step.args[1], f"row_adjoint({self.names.slot(step.var)})")
            self._line(f"row_ends({self.names.slot(step.var)});")
        elif is_each(step.op) and step.var.kind == "v":
            self._each(step, self.names.slot(step.var))
            self._line(f"row_ends({self.names.slot(step.var)});")
        elif step.op == CELL:
            self._add(step.args[0], f"{self.names.slot(step.var)}->adjoint")
        elif step.var in self.local:
            g = self.names.local_adjoint(step.var)
            if is_each(step.op):
                self._each(step, g)
                return
            if step.op == VECTOR_DOT:
                a, b = (self._atom(arg) for arg in step.args)
                self._line(f"row_dot_back({g}, {a}, {b});")
                return
            if step.op == VECTOR_REF:
                row, at = (self._atom(arg) for arg in step.args)
                self._line(f"adjoint_of({row})[(uint32_t){at}] += {g};")
                return
            if step.op == CAR:
                self._line(f"{self._atom(step.args[0])}->adjoint += {g};")
                return
            beside = self.tape.beside.get(step.var)
            if beside is not None:
                values = {"p": self.names.slot(beside), "g": g}
                companion = companion_of(step.op)
                assert companion is not None, "another value is beside it"
                self._add(step.args[0], filled(companion.text, values))
                return
            values = self._values(step, g)
            for arg, partial in zip(step.args, partials_of(step.op), strict=False):
                self._add(arg, filled(partial.text, values))

    def _own_set(self, step: Let) -> None:
        row, at, value = step.args
        made, old = self.names.slot(step.var), self._atom(row)
        place = f"adjoint_of({made})[(uint32_t){self._atom(at)}]"
        self._add(value, place)
        self._line(f"{place} = 0.0;")
        back = f"row_back({made}, {old}); row_ends({made});"
        self._line(f"if ({made} != {old}) {{ {back} }}")

    def _each(self, step: Let, made: str) -> None:
        texts = [self._atom(arg) for arg in step.args]
        test, other = "", ""
        if step.var.kind == "v":
            self._line(f"const int used_{made} = row_is_used({made});")
            test, other = f"used_{made}", " : 0.0"
        for arg, text in reverse_each(self.names.each, step, made, texts):
            if arg is None:
                self._line(f"if ({test}) {text}" if test else text)
            else:
                self._add(arg, f"({test} ? {text}{other})" if test else text)

    def _atom(self, atom: Atom) -> str:
        return self.names.atom(self.tape.same.get(atom, atom))

    def _values(self, step: Let, g: str) -> dict[str, str]:
        return {
            "a": self._atom(step.args[0]),
            "b": self._atom(step.args[-1]),
            "y": self.names.slot(step.var),
            "g": g,
        }

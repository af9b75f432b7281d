"""The printer of the typed form, with what each way puts on the tape."""

from collections.abc import Iterator

from retape.engines.vlad.compiler.typed._form import (
    Do,
    Give,
    Go,
    IfTyped,
    Invoke,
    Join,
    Nil,
    Register,
    Stop,
    Ticks,
    TypedAtom,
    TypedProgram,
    TypedTerm,
    parts_of,
)
from retape.engines.vlad.compiler.typed._recorded import recorded
from retape.engines.vlad.compiler.typed._useful import useful_slots
from retape.engines.vlad.compiler.typed._ways import Ways, find_ways


def pretty_typed(program: TypedProgram) -> str:
    """A program as text; `*` marks what adjoints can reach."""
    useful = useful_slots(program)
    printer = _Printer(useful, find_ways(program, useful))
    lines: list[str] = []
    for index in sorted(program.functions):
        function = program.functions[index]
        name = f" ; {function.name}" if function.name else ""
        lines.append(f"f{index}({printer.atoms(function.params)}) ={name}")
        lines += [*printer.term(function.body, "  "), ""]
    return "\n".join(lines)


class _Printer:
    def __init__(self, useful: frozenset[Register], ways: Ways) -> None:
        self.useful, self.ways = useful, ways

    def atoms(self, atoms: tuple[TypedAtom, ...]) -> str:
        return " ".join(self._atom(atom) for atom in atoms)

    def _atom(self, atom: TypedAtom) -> str:
        if isinstance(atom, Register):
            return atom.name + ("*" if atom in self.useful else "")
        if isinstance(atom, Nil):
            return "()"
        return f"#{'ft'[atom]}" if isinstance(atom, bool) else f"{atom:g}"

    def term(self, term: TypedTerm, indent: str) -> Iterator[str]:
        while True:
            match term:
                case Do():
                    text = f"{term.op} {self.atoms(term.args)}".rstrip()
                    yield f"{indent}let {self._atom(term.var)} = {text}"
                case Ticks():
                    yield f"{indent}tick {term.steps}"
                case Join():
                    params = self.atoms(tuple(parts_of(term.params)))
                    block = " block" if term.name in self.ways.blocks else ""
                    yield f"{indent}join {term.name}({params}){block} ="
                    yield from self.term(term.cont, indent + "  ")
                case _:
                    break
            term = term.body
        yield from self._end(term, indent)

    def _end(self, term: TypedTerm, indent: str) -> Iterator[str]:
        match term:
            case IfTyped():
                yield f"{indent}if {self._atom(term.test)}"
                yield from self.term(term.then, indent + "  ")
                yield f"{indent}else"
                yield from self.term(term.other, indent + "  ")
            case Stop():
                yield f"{indent}stop"
            case Go():
                yield f"{indent}{term.join}({self.atoms(term.args)}){self._tape(term)}"
            case Give():
                yield f"{indent}give {self.atoms(term.args)}{self._tape(term)}"
            case Invoke():
                called = f"f{term.function}({self.atoms(term.args)})"
                if term.push is not None:
                    called += f" push [{self.atoms(term.push.words)}]"
                yield f"{indent}{called}{self._tape(term)}"
            case Do() | Ticks() | Join():
                raise AssertionError("no end of a block")

    def _tape(self, term: Go | Give | Invoke) -> str:
        way = self.ways.ways.get(id(term))
        if way is None or (isinstance(term, Go) and term.join not in self.ways.blocks):
            return ""
        tape = recorded(way, self.useful)
        once = f" once {_names(tape.fixed)}" if tape.fixed else ""
        return f"  ; tape {_names(tape.kept)}".rstrip() + once


def _names(slots: tuple[Register, ...]) -> str:
    return " ".join(slot.name for slot in slots)

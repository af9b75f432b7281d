"""The printer of the intermediate form: `retape vlad --emit cps` and `typed`."""

from collections.abc import Iterator

from retape.engines.vlad.compiler.ir._ir import (
    Apply,
    Atom,
    Branch,
    Call,
    Close,
    Cont,
    Fix,
    Fun,
    FunRef,
    Jump,
    Let,
    Lit,
    Lowered,
    Match,
    Operate,
    Quoted,
    Return,
    Stop,
    Term,
    Tick,
    Uncons,
)
from retape.engines.vlad.values._values import show


def pretty(module: Lowered) -> str:
    """A module as text."""
    lines: list[str] = []
    for index in sorted(module.functions):
        lines.extend(_function(module.functions[index], module, ""))
        lines.append("")
    entries = " ".join(f"f{index}" for index in module.entries)
    return "\n".join([*lines, f"run {entries}", ""] if entries else lines)


def _function(fun: Fun, module: Lowered, indent: str) -> Iterator[str]:
    env = f" [{' '.join(fun.env)}]" if fun.env else ""
    name = f" ; {fun.name}" if fun.name else ""
    yield f"{indent}f{fun.index}({' '.join(fun.params)}){env} ={name}"
    yield from _term(fun.body, module, indent + "  ")


def _term(term: Term, module: Lowered, indent: str) -> Iterator[str]:
    """The lines of a term; what follows a `let` stands below it."""
    while True:
        yield from _head(term, module, indent)
        if not isinstance(term, (Let, Uncons, Match, Close, Fix, Tick, Cont)):
            return
        term = term.body


def _head(term: Term, module: Lowered, indent: str) -> Iterator[str]:
    def show_all(atoms: tuple[Atom, ...]) -> str:
        return " ".join(_atom_text(atom, module) for atom in atoms)

    match term:
        case Let():
            yield f"{indent}let {term.var} = {term.op} {show_all(term.args)}".rstrip()
        case Uncons():
            yield f"{indent}uncons {term.car} {term.cdr} = {show_all((term.arg,))}"
        case Match():
            yield f"{indent}match {show_all((term.arg, term.constant))}"
        case Close():
            yield f"{indent}close {term.var} = f{term.function}[{show_all(term.env)}]"
        case Tick():
            yield f"{indent}tick {term.steps}"
        case Fix():
            yield f"{indent}fix"
            for fun in term.functions:
                yield from _function(fun, module, indent + "  ")
        case Cont():
            yield f"{indent}cont {term.name}({' '.join(term.params)}) ="
            yield from _term(term.cont, module, indent + "  ")
        case Branch():
            yield f"{indent}if {show_all((term.test,))}"
            yield from _term(term.then, module, indent + "  ")
            yield f"{indent}else"
            yield from _term(term.other, module, indent + "  ")
        case Jump():
            yield f"{indent}{term.cont}({show_all(term.args)})"
        case Return():
            yield f"{indent}return {show_all(term.args)}"
        case Call():
            called = f"f{term.function}({show_all(term.args)})"
            yield f"{indent}{called}{_to(term.cont)}"
        case Apply():
            yield f"{indent}apply {show_all((term.fun, term.arg))}{_to(term.cont)}"
        case Operate():
            yield f"{indent}{term.op} {show_all(term.args)}{_to(term.cont)}"
        case Stop():
            yield f"{indent}stop"


def _to(cont: str | None) -> str:
    return "" if cont is None else f" -> {cont}"


def _atom_text(atom: Atom, module: Lowered) -> str:
    match atom:
        case str():
            return atom
        case Lit():
            return show(atom.value)
        case Quoted():
            return "'" + show(module.quoted[atom.index])
        case FunRef():
            return f"f{atom.function}"

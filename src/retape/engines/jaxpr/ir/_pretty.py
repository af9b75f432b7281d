"""Print the intermediate form, as text that a person can read.

    program(a: f32[4]*) -> c
      block 0:
        b <- 0
        c <- a
        -> 1
      loop (20 times):
        block 1:
          d: f32[4]* = sin c
          e: i32[], f: bool[] = ...
          b <- e
          c <- d
          -> 2 or 1 by f
      block 2:
        end

Variables are named in the order in which they are met, so that equal programs read
alike. A star says that a derivative flows through. `x[i]` is the row of a stream that
belongs to the iteration `i`, and `c <- d` an assignment at the end of a block, all at
once. `-> 2 or 1 by f` goes on at block 2 if `f` is 0, at block 1 if it is 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from string import ascii_lowercase
from typing import Any

import numpy as np

from retape.engines.jaxpr.ir._ir import (
    Atom,
    Block,
    Item,
    Label,
    Lit,
    Op,
    Position,
    Program,
    RowNumber,
    Var,
    blocks_of,
)

_SHORT = {"float": "f", "int": "i", "uint": "u", "bfloat": "bf", "complex": "c"}
_PLAIN = (str, int, float, tuple, np.dtype)
_LONGEST_PARAM = 40
"""Characters of the longest parameter of an operation that is shown."""


def pretty(program: Program) -> str:
    """The text of a program."""
    return Printer(program).text()


class Printer:
    """Prints one program; knows afterwards what it called its variables."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.names: dict[Var, str] = {}
        blocks = blocks_of(program.items)
        self.number: dict[Label, int] = {b.label: i for i, b in enumerate(blocks)}

    def text(self) -> str:
        """The program, line by line."""
        return "\n".join(self.lines())

    def lines(self) -> Iterator[str]:
        operands = ", ".join(map(self.met, self.program.operands))
        # Outputs have their names by the time that they are printed last.
        body = list(self.items(self.program.items, 1))
        outs = ", ".join(map(self.atom, self.program.outs))
        yield f"program({operands}) -> {outs}"
        yield from body

    def items(self, items: list[Item], depth: int) -> Iterator[str]:
        margin = "  " * depth
        for item in items:
            if isinstance(item, Block):
                yield f"{margin}block {self.number[item.label]}:"
                yield from (f"{margin}  {line}" for line in self.block(item))
            else:
                times = "" if item.length is None else f" ({item.length} times)"
                yield f"{margin}loop{times}:"
                yield from self.items(item.items, depth + 1)

    def block(self, block: Block) -> Iterator[str]:
        for read in block.reads:
            yield f"{self.met(read.out)} = {self.row(read.stream, read.at)}"
        yield from map(self.op, block.ops)
        for write in block.writes:
            if write.at is None:
                yield f"rows of {self.atom(write.stream)} <- {self.atom(write.source)}"
            else:
                row = self.row(write.stream, write.at)
                yield f"{row} <- {self.atom(write.source)}"
        for var, source in block.moves.items():
            yield f"{self.met(var)} <- {self.atom(source)}"
        targets = [str(self.number[t]) for t in block.next.targets]
        index = block.next.index
        by = "" if index is None else f" by {self.atom(index)}"
        yield f"-> {' or '.join(targets)}{by}" if targets else "end"

    def op(self, op: Op) -> str:
        outs = ", ".join(map(self.met, op.outs))
        ins = " ".join(map(self.atom, op.ins))
        made = f"{outs} = " if outs else ""
        return f"{made}{op.eqn.primitive.name}{_params(op.eqn.params)} {ins}".rstrip()

    def row(self, stream: Var, at: Position | RowNumber) -> str:
        if isinstance(at, RowNumber):
            return f"{self.atom(stream)}[{self.atom(at.index)}]"
        count = self.atom(at.count)
        backwards = f"{at.length - 1} - {count}"
        return f"{self.atom(stream)}[{backwards if at.reverse else count}]"

    def met(self, var: Var) -> str:
        """A variable, with its type where it is met for the first time."""
        if var in self.names:
            return self.names[var]
        return f"{self.atom(var)}: {type_text(var.aval)}{'*' * var.active}"

    def atom(self, atom: Atom) -> str:
        if isinstance(atom, Lit):
            return _number_text(atom.value)
        if atom is self.program.written:
            return "written"
        return self.names.setdefault(atom, _letters(len(self.names)))


def type_text(aval: Any) -> str:
    """A type, as JAX writes it: `f32[3,4]`."""
    name = str(aval.dtype)
    kind = name.rstrip("0123456789")
    short = _SHORT.get(kind, kind) + name[len(kind) :]
    return f"{short}[{','.join(map(str, aval.shape))}]"


def _letters(i: int) -> str:
    """`a` to `z`, then `aa` and so on."""
    i, last = divmod(i, 26)
    return (_letters(i - 1) if i else "") + ascii_lowercase[last]


def _number_text(value: Any) -> str:
    return str(np.asarray(value)[()] if np.ndim(value) == 0 else value)


def _params(params: dict[str, Any]) -> str:
    """The parameters that say something, on one line; programs are left out."""
    shown: list[str] = []
    for key, value in params.items():
        # Truths are many and say little; programs and rules are no text.
        if isinstance(value, bool) or not isinstance(value, _PLAIN) or value == ():
            continue
        text = str(value).replace(" ", "")
        if len(text) <= _LONGEST_PARAM:
            shown.append(f"{key}={text}")
    return f"[{' '.join(shown)}]" if shown else ""

"""Text to data, with positions: the only module that looks at characters.

The reader builds lists and nothing else; what they mean is the expander's worry. It
keeps its own stack, so that text nested without end is a message and no overflow.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from retape.engines.vlad.language._diagnostics import ReadError, Source, Where

MAX_NESTING = 1_000
"""Deeper text than this is refused: no person writes it, and passes recurse."""

_TOKEN = re.compile(
    r"""\s+|;[^\n]*|(?P<token>[()\[\]']|\#;|\#\||"[^"\n]*"|[^\s()\[\]';"]+|")"""
)
_BLOCK_EDGE = re.compile(r"\#\||\|\#")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\Z")
_RATIO = re.compile(r"([+-]?\d+)/(\d+)\Z")
_CLOSER = {"(": ")", "[": "]"}
_PREFIXES = {
    "'": "a quote is followed by a datum; write one, as in `'()`",
    "#;": "`#;` comments out the datum after it; write one, or remove it",
}


@dataclass(frozen=True, slots=True)
class Symbol:
    """A name."""

    name: str
    where: Where


@dataclass(frozen=True, slots=True)
class Literal:
    """A number or a boolean."""

    value: float | bool
    where: Where


@dataclass(frozen=True, slots=True)
class Text:
    """A path between double quotes, which only `include` takes."""

    value: str
    where: Where


@dataclass(frozen=True, slots=True)
class Form:
    """A parenthesised list; `tail` is what follows a dot, and `None` without one."""

    items: tuple["Datum", ...]
    where: Where
    tail: "Datum | None" = None


Datum = Symbol | Literal | Text | Form


@dataclass(slots=True)
class _Open:
    """A list whose end has not been seen; or a `'` or `#;` waiting for its datum."""

    opener: str
    where: Where
    items: list[Datum]
    dot: int | None = None


def read(source: Source) -> list[Datum]:
    """Read every datum of a text.

    Examples:
        >>> [form.items[0].name for form in read(Source("example", "(f 1) (g)"))]
        ['f', 'g']
    """
    top: list[Datum] = []
    stack: list[_Open] = []
    for token, where in _tokens(source):
        if token in ("(", "[", *_PREFIXES):
            if len(stack) >= MAX_NESTING:
                _refuse(
                    f"this is nested more than {MAX_NESTING} deep; divide it", where
                )
            stack.append(_Open(token, where, []))
        elif token in (")", "]"):
            _add(_close(stack, token, where), stack, top)
        elif token == ".":
            _dot(stack, where)
        else:
            _add(_atom(token, where), stack, top)
    if stack:
        _unfinished(stack[-1])
    return top


def _tokens(source: Source) -> Iterator[tuple[str, Where]]:
    position, text = 0, source.text
    while position < len(text):
        match = _TOKEN.match(text, position)
        assert match is not None, "the token pattern covers every character"
        token = match["token"]
        if token == "#|":
            position = _after_block(source, position)
            continue
        if token is not None:
            yield token, Where(source, position)
        position = match.end()


def _after_block(source: Source, start: int) -> int:
    """The position after a comment `#| ... |#`, which may hold others."""
    depth = 0
    for edge in _BLOCK_EDGE.finditer(source.text, start):
        depth += 1 if edge[0] == "#|" else -1
        if depth == 0:
            return edge.end()
    _refuse("this `#|` is never closed; write the missing `|#`", Where(source, start))


def _atom(token: str, where: Where) -> Datum:
    if token in ("#t", "#f"):
        return Literal(token == "#t", where)
    if len(token) > 1 and token[0] == token[-1] == '"':
        return Text(token[1:-1], where)
    if token == "#":
        _refuse(
            "a vector is printed as `#(...)` but cannot be written; make one with "
            "`(make-vector n x)`",
            where,
        )
    if token[0] == "#" or '"' in token or "`" in token or "," in token:
        _refuse(
            f"`{token[:40]}` is neither a number, a name, `#t` nor `#f`; the language "
            "has no strings, characters or quasiquotation",
            where,
        )
    number = to_number(token)
    if number is not None:
        return Literal(number, where)
    if token[0].isdigit():
        _refuse(
            f"`{token[:40]}` begins like a number but is not one; correct it", where
        )
    return Symbol(token, where)


def _add(datum: Datum, stack: list[_Open], top: list[Datum]) -> None:
    """Put a datum into the list that is open, ending the prefixes that wait for it."""
    while stack and stack[-1].opener in _PREFIXES:
        quote = stack.pop()
        if quote.opener == "#;":
            return
        datum = Form((Symbol("quote", quote.where), datum), quote.where)
    if stack and stack[-1].dot is not None:
        if len(stack[-1].items) > stack[-1].dot:
            _refuse("only one datum may follow a dot; remove the others", datum.where)
    (stack[-1].items if stack else top).append(datum)


def _dot(stack: list[_Open], where: Where) -> None:
    if not stack or stack[-1].opener in _PREFIXES or not stack[-1].items:
        _refuse("a dot stands between the last two data of a list; remove it", where)
    if stack[-1].dot is not None:
        _refuse("a list has at most one dot; remove this one", where)
    stack[-1].dot = len(stack[-1].items)


def _close(stack: list[_Open], token: str, where: Where) -> Form:
    if not stack:
        _refuse(f"this `{token}` closes nothing; remove it, or open a list", where)
    opened = stack.pop()
    if opened.opener in _PREFIXES:
        _refuse(_PREFIXES[opened.opener], opened.where)
    if _CLOSER[opened.opener] != token:
        _refuse(
            f"`{token}` closes the `{opened.opener}` of line {opened.where.line}; "
            f"write `{_CLOSER[opened.opener]}`",
            where,
        )
    if opened.dot is None:
        return Form(tuple(opened.items), opened.where)
    if opened.dot == len(opened.items):
        _refuse("a datum follows a dot; write one, or remove the dot", where)
    return Form(tuple(opened.items[:-1]), opened.where, opened.items[-1])


def _unfinished(opened: _Open) -> None:
    if opened.opener in _PREFIXES:
        _refuse(_PREFIXES[opened.opener], opened.where)
    _refuse(
        f"this `{opened.opener}` is never closed; write the missing "
        f"`{_CLOSER[opened.opener]}`",
        opened.where,
    )


def _refuse(message: str, where: Where) -> NoReturn:
    raise ReadError(message, where)


def echo(datum: Datum, limit: int = 60) -> str:
    """Print a datum back as text, cut to a length, for messages."""
    text = "".join(_pieces(datum, limit))
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _pieces(datum: Datum, budget: int) -> Iterator[str]:
    stack: list[Datum | str] = [datum]
    while stack and budget > -8:
        item = stack.pop()
        if isinstance(item, Form):
            stack.append(")")
            if item.tail is not None:
                stack.extend((item.tail, " . "))
            for index, inner in enumerate(reversed(item.items)):
                stack.append(inner)
                if index < len(item.items) - 1:
                    stack.append(" ")
            item = "("
        elif isinstance(item, Literal):
            item = show_constant(item.value)
        elif isinstance(item, Symbol):
            item = item.name
        elif isinstance(item, Text):
            item = f'"{item.value}"'
        budget -= len(item)
        yield item


def to_number(text: str) -> float | None:
    """The real that a text writes, rounded to nearest; `None` for another text.

    Examples:
        >>> to_number("1e3"), to_number("-1/4"), to_number("nan")
        (1000.0, -0.25, None)
    """
    if _NUMBER.match(text):
        return float(text)
    ratio = _RATIO.match(text)
    if ratio is None or int(ratio[2]) == 0:
        return None
    try:
        return int(ratio[1]) / int(ratio[2])
    except OverflowError:
        return math.copysign(math.inf, int(ratio[1]))


def show_constant(value: float | bool) -> str:
    """A number or boolean as the language writes it: `3`, `0.5`, `#t`."""
    if isinstance(value, bool):
        return "#t" if value else "#f"
    if value != value or value in (float("inf"), float("-inf")):
        return {"nan": "+nan", "inf": "+inf", "-inf": "-inf"}[repr(value)]
    text = repr(value)
    return text[:-2] if text.endswith(".0") else text

"""Records as tables for notebooks: what `_repr_html_` of reports and plans returns."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from html import escape
from typing import Any

_UNITS = (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))


def record_html(record: Any) -> str:
    """A dataclass as a table; fields without a value are left out.

    Examples:
        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Run:
        ...     length: int
        ...     peak_bytes: int
        ...     cost: float | None = None
        >>> print(record_html(Run(7, 2048)))  # doctest: +ELLIPSIS
        <table><caption...>Run</caption>...>7</td></tr>...2.0 KiB</td></tr></table>
    """
    rows = []
    for each in fields(record):
        value = getattr(record, each.name)
        if each.repr and value is not None:
            rows.append((each.name.replace("_", " "), shown(each.name, value)))
    return table(type(record).__name__, rows)


def table(title: str, rows: Iterable[tuple[str, str]]) -> str:
    """Two columns under a caption."""
    left = '<td style="text-align:left;white-space:pre">'
    body = "".join(
        f'<tr><th scope="row" style="text-align:left">{escape(name)}</th>'
        f"{left}{escape(value)}</td></tr>"
        for name, value in rows
    )
    caption = '<caption style="text-align:left">'
    return f"<table>{caption}{escape(title)}</caption>{body}</table>"


def shown(name: str, value: Any) -> str:
    """A value as people read it.

    Examples:
        >>> shown("peak_bytes", 1536), shown("seconds", {"sweep": 0.25})
        ('1.5 KiB', 'sweep 0.25')
    """
    if name.endswith(("bytes", "budget", "memory")) and isinstance(value, int):
        for unit, size in _UNITS:
            if value >= size:
                return f"{-(-value * 10 // size) / 10} {unit}"
        return f"{value} B"
    if isinstance(value, dict):
        return ", ".join(f"{key} {number:.3g}" for key, number in value.items())
    return f"{value}"


def staircase(points: Sequence[tuple[int, int]], label: str) -> str:
    """A small picture of a count over time, in the colours of the page."""
    width, height = 480, 90
    right = max((x for x, _ in points), default=0) or 1
    top = max((y for _, y in points), default=0) or 1
    path, before = ["M0,90"], 0
    for x, y in points:
        at = f"{x * width / right:.1f}"
        path.append(f"L{at},{height - before * height / top:.1f}")
        path.append(f"L{at},{height - y * height / top:.1f}")
        before = y
    path.append(f"L{width},{height}Z")
    return (
        f'<svg viewBox="0 -4 {width} {height + 8}" width="{width}" role="img" '
        f'style="max-width:100%"><title>{escape(label)}</title>'
        f'<path d="{" ".join(path)}" fill="#d9a441"/></svg>'
    )

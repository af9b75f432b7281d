"""Several files of C as one text: what is compiled apart, at the same time."""

NEXT_FILE = "/* The next file. */"
"""The line between two files."""


def files_of(text: str) -> tuple[str, ...]:
    """The files of a text."""
    return tuple(text.split(NEXT_FILE))

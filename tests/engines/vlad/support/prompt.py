"""A conversation at the prompt, with someone else at the keyboard."""

from collections.abc import Callable, Iterable

import pytest

from retape.cli import main


def converse(lines: Iterable[str | Callable[[], None]]) -> list[str]:
    """What is on the screen when these lines were written; a function is called."""
    told: list[str] = []
    pending = iter(lines)

    def ask(prompt: str) -> str:
        for line in pending:
            if isinstance(line, str):
                told.append(prompt + line)
                return line
            line()
        raise EOFError

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", "/no/home")  # without a history
        patch.setattr("builtins.input", ask)
        patch.setattr("builtins.print", told.append)
        assert main(["vlad"]) == 0
    return told

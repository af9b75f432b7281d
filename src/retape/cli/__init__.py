"""The `retape` command."""

from ._main import main as main

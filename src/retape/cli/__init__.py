"""The `retape` command."""

from retape.cli._main import main as main

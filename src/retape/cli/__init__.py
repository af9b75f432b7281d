"""The `retape` command."""

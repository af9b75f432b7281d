"""Python's expressions to the core language, with their types."""

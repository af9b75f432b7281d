"""Python's statements and expressions to the core language, with their types."""

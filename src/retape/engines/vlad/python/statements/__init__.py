"""Python's statements to the core language: control flow as functions."""

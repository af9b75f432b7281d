"""Python functions as text: found, parsed, their names and types."""

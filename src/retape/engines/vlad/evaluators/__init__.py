"""The interpreters: continuation-passing, and direct with conversion."""

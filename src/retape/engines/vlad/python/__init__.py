"""Plain Python functions as programs: read, typed, translated to the core language."""

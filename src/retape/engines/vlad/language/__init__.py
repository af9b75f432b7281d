"""From text to the core language."""

"""From C to a loaded program."""

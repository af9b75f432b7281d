"""From the core language to the intermediate form."""

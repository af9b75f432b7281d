"""From the typed form to C that runs it, and to C that propagates adjoints."""

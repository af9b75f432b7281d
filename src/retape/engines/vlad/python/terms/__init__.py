"""Terms of the core language that several Python constructs need."""

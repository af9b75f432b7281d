"""Programs of step functions: the machine that runs them, and what it asks of them."""

"""Values at run time: closures, numbers with derivatives, arrays."""

"""Questions about a trace: lifetimes, bytes, costs."""

"""A Python function and its arguments to its gradient, called or compiled."""

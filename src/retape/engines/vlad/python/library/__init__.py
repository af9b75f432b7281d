"""NumPy's functions, written in the language that is compiled."""

"""Retape's own JAX primitives, one a file."""

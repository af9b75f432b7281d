"""Retape's own JAX primitives beside calls, one a file."""

"""Reverse-mode gradients in sublinear memory, for programs with no annotation."""

__version__ = "0.1.0"

"""Marked graphs: an autograd engine that recomputes."""

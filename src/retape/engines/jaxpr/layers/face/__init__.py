"""Marked functions, layers and loops, as users call them."""

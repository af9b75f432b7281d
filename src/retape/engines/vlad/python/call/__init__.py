"""Compiled Python functions and their derivatives, as Python calls them."""

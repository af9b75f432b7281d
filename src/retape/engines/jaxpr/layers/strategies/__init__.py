"""Strategies: where a whole function is cut, and what it stores."""

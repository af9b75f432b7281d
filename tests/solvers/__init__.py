"""Adjoints and loops with the signatures of other packages."""

"""Loops in nested rematerialised segments."""

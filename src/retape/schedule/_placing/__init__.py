"""Schedules of runs whose end is not known: what is kept on the way, and where."""

"""Schedules learned from the runs before."""

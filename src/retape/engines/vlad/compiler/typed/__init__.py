"""Typed code: functions on plain doubles, and their adjoints as generated C."""

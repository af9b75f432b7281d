"""Runs that end early, and go on: in another process, or where a snapshot is lost."""

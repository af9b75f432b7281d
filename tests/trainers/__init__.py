"""Trainers of other packages, with a budget by callback."""

"""Checkpointing of functions and layers: what is stored, what is recomputed."""

"""Stores: where snapshots are kept, with no idea of frameworks."""

"""Buffers that are written once a row, kept beside the snapshots."""

"""Codecs: what a store writes in fewer bytes, and how far off that may be."""

"""Compiled regions inside of a recording, each as one step of it."""

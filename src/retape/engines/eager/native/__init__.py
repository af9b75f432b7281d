"""The compiled accelerator: its C++ sources, and how they are built and loaded."""

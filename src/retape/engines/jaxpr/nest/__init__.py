"""A program's loops, made resumable: for a CPU, and in known trip counts for a GPU."""

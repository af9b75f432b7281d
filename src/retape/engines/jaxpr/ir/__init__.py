"""The intermediate form: variables, operations, blocks, loops, programs."""

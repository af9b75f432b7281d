"""Trees of arrays: what a state may consist of, and what the library does with it.

In the order of use: `_kinds` takes containers apart, `_arrays` copies arrays with their
memory layout, `_tensors` and `_jax_arrays` those of PyTorch and JAX, `_tree` says what
is a leaf and walks, `_arithmetic` and `_magnitude` work on the numbers, `_serialize`
makes JSON and arrays of one for `storage._codec` to write.
"""

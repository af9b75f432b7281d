"""The adjoint program: one XLA program, or a machine that the host steers."""

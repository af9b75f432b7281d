"""Rules of the two primitives: derivatives, batching, lowering, devices."""

"""Tests of the JAX engine."""

"""The JAX engine: any jaxpr as a machine whose steps can be counted and re-run."""

"""Programs as JAX has them: values, evaluation, traits; no steps, no plans."""

"""Ten Python functions, compiled: time, memory and gradients."""

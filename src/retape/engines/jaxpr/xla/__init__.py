"""What XLA must be told, or talked out of: each workaround with its measurement."""

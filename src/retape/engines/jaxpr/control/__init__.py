"""The integers that steer a sweep, as traced arithmetic."""

"""What `retape.jax` exports, but for the layer tools."""

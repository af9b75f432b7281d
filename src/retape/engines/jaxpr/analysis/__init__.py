"""Questions about jaxprs, answered without changing them."""

"""From a jaxpr to the intermediate form."""

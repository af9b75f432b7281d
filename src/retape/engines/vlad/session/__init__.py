"""Programs run for a user: modules, stores, the prompt."""

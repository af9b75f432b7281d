"""The forward run: what is kept within a budget."""

"""Whether a gradient fits, and the cheapest way to make it fit."""

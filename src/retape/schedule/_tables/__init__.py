"""Dynamic programmes, and the policies that they mean: what is kept of an interval."""

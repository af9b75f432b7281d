"""Plans: which schedule a gradient follows, and what that takes.

One strategy is one module: its class, then its public function. `_parse` lists them and
reads them as text, `_support` says who obeys which.
"""

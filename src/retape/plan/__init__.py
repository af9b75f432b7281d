"""Plans: which schedule a gradient follows, and what that takes.

One strategy is one module: its class, then its public function. `_registry` lists them,
`_support` says who obeys which, `_parse` reads them as text.
"""

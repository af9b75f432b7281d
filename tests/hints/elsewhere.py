"""Hints that no row follows, and why."""

ELSEWHERE: list[tuple[str, str]] = [
    (
        "use `jax.grad`",
        "A program with a type of JAX's experimental `hijax`, whose forms differ "
        "between releases; the hint leads out of this library.",
    ),
    (
        "Pass a `retape.storage.ZarrStore(..., mesh=mesh)`",
        "Arrays with parts in several processes; tests/storage/test_zarr.py has such "
        "stores in two.",
    ),
]
"""One entry for each place where such a hint stands: as it stands in the sources."""

"""The names are those of the guide."""

import retape.torch


def test_public_names() -> None:
    public = {name for name in vars(retape.torch) if not name.startswith("_")}
    assert public == {
        "Checkpointed", "CompilerBudget", "Graph", "MemoryMeter", "accelerate",
        "checkpoint", "checkpoint_sequential", "diagnose", "estimate",
        "matrix_products", "name_modules", "names", "recompute", "region",
    }  # fmt: skip

"""Twenty-two NNX training runs against plain: `Checkpointed` and `remat_scan`.

Dropout, batch norm, counters, metrics, a cache of keys and values, `nnx.Rngs` as an
argument, and so on. Counters, random keys and masks are compared to the bit; floating
numbers, in double precision, to 1e-12, as two compilations differ.

    python -m benchmarks.layers.nnx_training
"""

from __future__ import annotations

import warnings

from flax import nnx
from tests.engines.jaxpr.layers.remat import test_flax
from tests.nnx import training_runs

import retape.jax
import retape.nnx


def main() -> None:
    warnings.filterwarnings("ignore", "Using 'Module.sow", DeprecationWarning)
    runs = [
        ("Checkpointed", test_flax.MODELS, test_flax.plain, retape.jax.Checkpointed),
        ("remat_scan", training_runs.MODELS, nnx.scan, retape.nnx.remat_scan),
    ]
    failed = 0
    for what, models, plain, ours in runs:
        for name, make in models.items():
            try:
                want = test_flax.train(make(plain))
                test_flax.assert_same(test_flax.train(make(ours)), want)
                told = "the same"
            except Exception as error:
                failed += 1
                told = f"{type(error).__name__}: {str(error).splitlines()[0]}"
            print(f"{what:14} {name:26} {told}", flush=True)
    print(f"{failed} of {sum(len(r[1]) for r in runs)} differ")


if __name__ == "__main__":
    main()

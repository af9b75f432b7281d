"""Training through `remat_scan` is training through `nnx.scan`, in every state."""

from __future__ import annotations

import pytest
from flax import nnx

import retape.nnx
from tests.engines.jaxpr.layers.remat.test_flax import assert_same, train
from tests.nnx.training_runs import MODELS


@pytest.mark.slow
@pytest.mark.parametrize("name", ["rngs as argument", "counters"])
def test_training_is_as_with_nnx_scan(name: str) -> None:
    want = train(MODELS[name](nnx.scan))
    assert_same(train(MODELS[name](retape.nnx.remat_scan)), want)

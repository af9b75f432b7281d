from typing import Any

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def tensors_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No budget covers the record: for programs with many operators on few bytes."""
    monkeypatch.setattr("retape.engines.eager._limits.SMALL_BUDGET", 10**12)


@pytest.fixture(autouse=True)
def nothing_is_known() -> None:
    """A test follows no plan that an earlier one has left."""
    from retape.engines.eager.api._checkpoint_sequential import forget_chains
    from retape.engines.eager.plan._learned import forget_lessons

    forget_lessons()
    forget_chains()


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps that are run again, counted beside the engine's own counters."""
    from retape.engines.eager.replay._backward import Sweep
    from retape.engines.eager.replay._replay import needed_steps

    steps: list[int] = []
    replay = Sweep._replay

    def counted(sweep: Sweep, wanted: set[int]) -> dict[int, Any]:
        steps.extend(needed_steps(sweep._run.trace, wanted))
        return replay(sweep, wanted)

    monkeypatch.setattr(Sweep, "_replay", counted)
    return steps

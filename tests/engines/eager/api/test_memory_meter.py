"""The meter of a PyTorch program where an allocator tells."""

import pytest
import torch

import retape.torch


def test_of_two_meters_one_in_the_other_each_counts() -> None:
    with retape.torch.MemoryMeter() as outer:
        kept = torch.ones(100) + 1
        with retape.torch.MemoryMeter() as inner:
            (torch.ones(50) + 1).sum()
    assert kept.nbytes == 400
    assert outer.memory is not None and inner.memory is not None
    assert inner.memory.measured_peak == 400
    assert outer.memory.measured_peak == 800


def test_what_is_on_cuda_is_counted_by_its_allocator(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = iter([1000, 1300, 1700, 1100])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: next(given))
    with retape.torch.MemoryMeter() as meter:
        a = torch.ones(100)
        b = a + 1  # tensors on the CPU are counted as ever
        del a
        b.sum()
    assert meter.memory is not None
    assert meter.memory.source == "alive, by CUDA's allocator"
    assert [s.nbytes for s in meter.memory.measured] == [700, 1500, 504]

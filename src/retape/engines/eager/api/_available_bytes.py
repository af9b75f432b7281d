"""The device's free memory as a budget: `memory="auto"`."""

import os
import sys
from pathlib import Path

import torch

from retape.engines.eager._errors import UnsupportedError

# Gradients that are not there yet, buffers of kernels and what allocators lose in
# between are not in a budget.
_PART_OF_FREE = 0.75
_CGROUP = Path("/sys/fs/cgroup")


def automatic_budget() -> int:
    """A budget from what is free now: three quarters of it, in two binary digits.

    Rounded so, the budgets of the steps of a training loop are one, and what was
    learned about the program in it holds.

    Raises:
        UnsupportedError: If the system does not say what is free.
    """
    free = int(_PART_OF_FREE * _free_bytes())
    digit = 1 << max(0, free.bit_length() - 2)
    return max(digit, free // digit * digit)


def _free_bytes() -> int:
    """Bytes free on the accelerator in use, else in the machine or container."""
    if torch.cuda.is_available():
        free, _ = torch.cuda.mem_get_info()
        return free + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    found = [each for each in (_machine(), _container()) if each is not None]
    if not found:
        raise UnsupportedError(
            f'`memory="auto"` cannot tell on `{sys.platform}` what is free. Give bytes.'
        )
    return min(found)


def _machine() -> int | None:
    """Bytes that the machine can give without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        names = getattr(os, "sysconf_names", {})
        if "SC_AVPHYS_PAGES" not in names:
            return None
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    table = {name: rest.split()[0] for name, rest in (x.split(":") for x in lines)}
    return 1024 * int(table["MemAvailable"])


def _container() -> int | None:
    """Bytes left below the limit of a control group, if there is one."""
    try:
        limit = (_CGROUP / "memory.max").read_text().strip()
        used = (_CGROUP / "memory.current").read_text()
    except OSError:
        return None
    return None if limit == "max" else max(0, int(limit) - int(used))

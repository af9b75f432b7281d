"""Several gloo processes that run the same job and hand back what they found."""

import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch

# Long enough for a machine under any load: a test fails by what a process reports.
_PATIENCE = 900


def _work(
    job: Callable[..., Any], rank: int, world: int, folder: str, args: tuple[Any, ...]
) -> None:
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=world,
        timeout=timedelta(seconds=_PATIENCE),
    )
    try:
        found = job(*args)
    except BaseException:
        found = traceback.format_exc()
    torch.save(found, f"{folder}/part{rank}")
    os.replace(f"{folder}/part{rank}", f"{folder}/found{rank}")
    if not isinstance(found, str):
        dist.destroy_process_group()


def run_processes(job: Callable[..., Any], world: int, *args: Any) -> list[Any]:
    """What `job(*args)` returns in each of `world` processes that know each other.

    Args:
        job: A function of a module that can be imported.
        world: The number of processes.
        *args: What can be pickled.

    Raises:
        AssertionError: If one of them fails; the others are ended then.
    """
    context = torch.multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        workers = [
            context.Process(target=_work, args=(job, rank, world, folder, args))
            for rank in range(world)
        ]
        for worker in workers:
            worker.start()
        try:
            _wait_for(workers)
            found = [
                torch.load(f"{folder}/found{rank}", weights_only=False)
                if os.path.exists(f"{folder}/found{rank}")
                else f"process {rank} ended without a word"
                for rank in range(world)
            ]
        finally:
            for worker in workers:
                worker.kill()
                worker.join()
    failures = [each for each in found if isinstance(each, str)]
    assert not failures, "\n".join(failures)
    return found


def run_in_turn(world: int, **jobs: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    """What several jobs return, done in turn by the same processes.

    To begin a process takes as long as most jobs do.

    Returns:
        By the name of the job, what it returned in each process.
    """
    found = run_processes(_one_by_one, world, list(jobs.values()))
    return {name: [each[k] for each in found] for k, name in enumerate(jobs)}


def _one_by_one(
    jobs: list[tuple[Callable[..., Any], tuple[Any, ...]]],
) -> tuple[Any, ...]:
    return tuple(job(*args) for job, args in jobs)


def _wait_for(workers: list[Any]) -> None:
    """Until all have ended, or one has failed: the others would wait for it."""
    from multiprocessing.connection import wait

    left = {worker.sentinel: worker for worker in workers}
    while left:
        ended = wait(list(left), timeout=_PATIENCE)
        assert ended, "processes that never end"
        for sentinel in ended:
            if left.pop(sentinel).exitcode:
                return

"""Collective operators: the storages that they write, and what they hold on to.

`c10d::allreduce_(Tensor[] tensors, ...)` overwrites its tensors and declares nothing.
The table has the position of the argument that each operator fills; of functional
collectives, whose results are new tensors, it has none.
"""

import time
from collections.abc import Callable, Mapping

NAMESPACES = frozenset(
    {"c10d", "_c10d_functional", "c10d_functional", "_dtensor", "symm_mem"}
)
"""Of operators whose results depend on other processes."""

WRITES: Mapping[str, tuple[int, ...]] = dict.fromkeys(
    (
        "c10d::_allgather_base_", "c10d::_reduce_scatter_base_",
        "c10d::allgather_", "c10d::allgather_coalesced_",
        "c10d::allgather_into_tensor_coalesced_", "c10d::allreduce_",
        "c10d::allreduce_coalesced_", "c10d::alltoall_", "c10d::alltoall_base_",
        "c10d::broadcast_", "c10d::gather_", "c10d::gather_into_tensor_", "c10d::recv_",
        "c10d::recv_any_source_", "c10d::reduce_", "c10d::reduce_scatter_",
        "c10d::reduce_scatter_tensor_coalesced_", "c10d::scatter_",
        "_c10d_functional::irecv", "c10d_functional::irecv",
    ),
    (0,),
) | {
    "_c10d_functional::batch_p2p_ops": (3,),
    "c10d_functional::batch_p2p_ops": (3,),
}  # fmt: skip
"""By operator, the arguments that it overwrites without declaring it."""

WITHOUT_RESULT = frozenset(
    {
        "_c10d_functional::_wrap_tensor_autograd", "_c10d_functional::isend",
        "_c10d_functional::wait_tensor", "_c10d_functional::wait_tensors",
        "c10d::barrier", "c10d::check_for_nan",
        "c10d::monitored_barrier_", "c10d::send", "c10d_functional::isend",
        "c10d_functional::wait_tensor", "_dtensor::mesh_get_process_group",
    }
)  # fmt: skip
"""They fill nothing: they send, or wait for what another one fills."""
_PATIENCE = 2.0  # seconds, in one run
_NAP = 1e-3


class InFlight:
    """What collectives read in one run: a thread that sends holds it a moment longer.

    A collective has ended for those who wait for it before its thread lets go of what
    it read: to do so it needs the interpreter, which it may not get for a while on a
    loaded machine. Such bytes are alive when they are counted, and nobody's.

    Attributes:
        nbytes: A margin for what one of them holds.
    """

    __slots__ = ("_patience", "_read", "nbytes")

    def __init__(self) -> None:
        self.nbytes = self._read = 0
        self._patience = _PATIENCE

    def read(self, nbytes: int) -> None:
        """Note that a collective is about to read so many bytes."""
        self.nbytes = max(self.nbytes, 2 * nbytes)
        self._read += 2 * nbytes

    def wait_for(self, excess: Callable[[], float]) -> float:
        """Let the threads go on until there is no excess, or patience is at its end.

        Args:
            excess: Bytes too many at the moment.

        Returns:
            What is left of the excess.
        """
        nap, left = _NAP, excess()
        while 0 < left <= self._read and self._patience > 0:
            time.sleep(nap)
            self._patience -= nap
            nap, left = 2 * nap, excess()
        return left

"""Recording one compiled region as a step."""

from typing import Any

import torch

from retape.engines.eager._compiled_region import CompiledRegion
from retape.engines.eager.record._dispatch_mode import Recorder
from retape.engines.eager.record._record_collective import written_tensors
from retape.engines.eager.record._record_operator import record
from retape.engines.eager.regions._quiet import off_the_stack
from retape.engines.eager.trace._random_state import generator_for


def run_region(recorder: Recorder, region: CompiledRegion, args: list[Any]) -> Any:
    """Run a region and add it to the trace."""
    trace, keeper = recorder.run.trace, recorder.keeper
    with off_the_stack(recorder):
        # In a backward it is no part of what is to be recomputed.
        if torch._C._current_graph_task_id() != -1:
            for tensor in written_tensors(region.kind, args, {}):
                trace.forget(tensor)
            return region(*args)
        keeper.make_room(region.bytes_for(args).forward + _kept_before(region, args))
        made = record(trace, region, region.kind, args, {})
        trace.counter.peak = max(trace.counter.peak, trace.counter.live)
        if trace.counter.live > trace.limit or len(trace.steps) >= trace.next_cut:
            keeper.relieve()
    return made


def _kept_before(region: CompiledRegion, args: list[Any]) -> int:
    """The bytes of what is kept to run it again: the generator's state, and old values
    of what it overwrites.
    """
    written = written_tensors(region.kind, args, {})
    kept = sum(tensor.untyped_storage().nbytes() for tensor in written)
    return kept + (generator_for(args, {}).get_state().nbytes * region.kind.random)

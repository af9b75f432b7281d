"""Hints that no row follows, and why."""

# ruff: noqa: E501 - a hint is a line

REASONS = """
Run `pip install --no-deps --target {} jax-cuda13-plugin=={} jax-cuda13-pjrt=={} nvidia-nvvm`
    It fetches 600 MB; `make bench-accelerator-aot` runs the line as it is said.
Run `pip install --no-deps --target {} '{}'`
    It fetches 140 MB; tests/judges/jax/test_described_devices.py reads which release it names.
use `jax.grad`
    A program with a type of JAX's experimental `hijax`, whose forms differ between releases; the hint leads out of this library.
Pass a `retape.storage.ZarrStore(..., mesh=mesh)`
    Arrays with parts in several processes; tests/storage/test_zarr.py has such stores in two.
Call the module, and not one of its methods, or gather them with `module.unshard()`
    Parameters of FSDP2 that are sharded over several processes; tests/engines/eager/record/test_sharded_modules.py has two.
Call it outside `recompute`
    Tensors of a layout without storage, which no operator of PyTorch to 2.15 makes on a CPU.
set `$RETAPE_CACHE`
    Neither a folder nor memory from which a system lets objects be loaded; tests/native_code/test_native_code.py has such a one.
set `$RETAPE_CACHE`
    No folder at all that can be written, as there.
Pass `mesh=`
    An array with parts in several processes, as above.
give each process a store of its own (`RankStore`
    Two processes that share a store, as above.
Use another dtype, or a `retape.MemoryStore`
    No type of PyTorch's to 2.15 of more than four bytes is one that NumPy lacks.
"""
"""One entry for each place where such a hint stands: as it stands in the sources."""
ELSEWHERE = [line for line in REASONS.strip().splitlines() if line[:4] != "    "]

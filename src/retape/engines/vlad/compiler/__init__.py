"""The compiler: VLAD to C, and C to machine code. `_pipeline.py` lists the passes."""

"""`mode="loop"`: calls noted instead of operators."""

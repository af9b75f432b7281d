"""A byte budget for what `torch.compile` saves: plans over the compiler's own graph."""

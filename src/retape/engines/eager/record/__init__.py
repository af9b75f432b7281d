"""From PyTorch's dispatcher into the trace, and from saved tensors back."""

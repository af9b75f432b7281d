"""What a gradient takes and does, predicted, measured and shown."""

"""What `retape.torch` exports."""

"""The backward run: recorded steps run again."""

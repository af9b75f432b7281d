"""Where a gradient goes wrong: the step, the line and the operation."""

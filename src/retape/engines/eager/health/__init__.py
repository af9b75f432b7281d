"""The health of a gradient: the operator, the module and the line that spoil it."""

"""What spoils a gradient of step functions: watched by a `Program` around theirs.

During the run only the size of each cotangent is looked at, where the adjoint of the
step before it is given it. If one is not as it should be, the functions are run again
up to that step, and the one at fault is called on copies, line by line.
"""

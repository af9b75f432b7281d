"""Conformance suites: does a machine, or a store, of your own keep what it promises?

A machine that breaks one of the driver's laws gives gradients that are silently wrong,
or wrong only after a crash. `check_machine` and `check_store` try the laws one by one;
a law that is broken is an error with a sentence that says which one, and how. The
machines and the stores of this library are checked in the same way.
"""

from retape.testing._check_machine import check_machine as check_machine
from retape.testing._check_store import check_store as check_store

"""The executor: the only loop in the library that obeys actions."""

from ._machine import Machine as Machine
from ._toy import ToyCapsule as ToyCapsule
from ._toy import ToyMachine as ToyMachine

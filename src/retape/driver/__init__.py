"""The executor: the only loop in the library that obeys actions."""

from retape.driver._machine import Machine as Machine
from retape.driver._run import run as run
from retape.driver._toy import ToyMachine as ToyMachine

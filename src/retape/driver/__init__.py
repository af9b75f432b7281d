"""The executor: the only loop in the library that obeys actions."""

from ._drive import Outcome as Outcome
from ._drive import run as run
from ._machine import Machine as Machine
from ._machine import TapingMachine as TapingMachine
from ._progress import Bar as Bar
from ._progress import Progress as Progress
from ._report import Report as Report
from ._toy import ToyCapsule as ToyCapsule
from ._toy import ToyMachine as ToyMachine
from ._verify import Verify as Verify

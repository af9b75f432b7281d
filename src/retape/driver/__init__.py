"""The executor: the only loop in the library that obeys actions."""

from retape.driver._drive import Outcome as Outcome
from retape.driver._drive import run as run
from retape.driver._machine import Machine as Machine
from retape.driver._machine import OverwritingMachine as OverwritingMachine
from retape.driver._machine import PackingMachine as PackingMachine
from retape.driver._machine import ResumedMachine as ResumedMachine
from retape.driver._machine import TapingMachine as TapingMachine
from retape.driver._memory_trace import MemoryTrace as MemoryTrace
from retape.driver._memory_trace import Meter as Meter
from retape.driver._memory_trace import Moment as Moment
from retape.driver._memory_trace import Sample as Sample
from retape.driver._memory_trace import predict_memory as predict_memory
from retape.driver._progress import Bar as Bar
from retape.driver._simulate import Overlap as Overlap
from retape.driver._simulate import simulate as simulate
from retape.driver._toy import ToyCapsule as ToyCapsule
from retape.driver._toy import ToyMachine as ToyMachine
from retape.driver._verify import Verify as Verify

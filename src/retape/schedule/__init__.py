"""Schedules: pure mathematics, integers in, actions out."""

from retape.schedule._action import Advance as Advance
from retape.schedule._action import Drop as Drop
from retape.schedule._action import Restore as Restore
from retape.schedule._action import Reverse as Reverse
from retape.schedule._action import Store as Store
from retape.schedule._action import Sweep as Sweep
from retape.schedule._action import Tape as Tape
from retape.schedule._chain import Chain as Chain
from retape.schedule._check import replay as replay
from retape.schedule._hierarchy import Hierarchy as Hierarchy
from retape.schedule._mixed import Mixed as Mixed
from retape.schedule._offline import Schedule as Schedule
from retape.schedule._placing._online import OnlineBinomial as OnlineBinomial
from retape.schedule._placing._online import OnlineMixed as OnlineMixed
from retape.schedule._placing._online import OnlineTiers as OnlineTiers

"""Schedules: pure mathematics, integers in, actions out."""

from ._action import Action as Action
from ._action import Advance as Advance
from ._action import Drop as Drop
from ._action import Restore as Restore
from ._action import Reverse as Reverse
from ._action import Store as Store

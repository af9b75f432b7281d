"""The two seams of plans that tests know: the rows of the registry, and plans as text.

The page of the architecture tells who adds a kind of plan to begin with its row.
"""

from retape.plan._parse import parse_plan as parse_plan
from retape.plan._registry import KINDS as KINDS

"""Pictures of schedules. Only drawing itself needs matplotlib."""

from ._layout import Layout as Layout
from ._layout import layout as layout
from ._text import draw_text as draw_text
from ._tradeoff import draw_tradeoff as draw_tradeoff

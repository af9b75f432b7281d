"""Pictures of schedules. Only drawing itself needs matplotlib."""

from retape.viz._layout import Layout as Layout
from retape.viz._layout import layout as layout
from retape.viz._text import draw_text as draw_text
from retape.viz._tradeoff import draw_tradeoff as draw_tradeoff

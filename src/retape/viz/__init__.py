"""Pictures of schedules. `retape.viz._figure` alone needs matplotlib."""

from ._layout import Layout as Layout
from ._layout import layout as layout
from ._text import draw_text as draw_text

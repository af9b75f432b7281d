"""Pictures of schedules and runs. Only drawing itself needs matplotlib."""

from retape.viz._schedule import draw_figure as draw_figure
from retape.viz._schedule import draw_text as draw_text
from retape.viz._timeline import timeline as timeline
from retape.viz._tradeoff import draw_tradeoff as draw_tradeoff

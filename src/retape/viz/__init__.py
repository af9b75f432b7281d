"""Pictures of schedules and reports; `_figure` alone needs matplotlib."""

"""The grid: widget, lines, layout, viewport, axis, cells, filter, order."""

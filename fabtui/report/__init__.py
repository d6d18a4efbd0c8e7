"""The text front end: summary, grids, problems, preflight, tables, progress."""

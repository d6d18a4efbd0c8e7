"""The fabric's memory: what earlier sessions saw of each component, in one SQLite file per site."""

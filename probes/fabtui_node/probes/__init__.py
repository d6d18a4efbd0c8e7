"""Built-in probes, by subject."""

"""Facts about nodes: catalogue, values, comparison within a hardware kind."""

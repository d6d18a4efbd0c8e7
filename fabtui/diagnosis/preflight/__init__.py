"""Rules about the state of nodes."""

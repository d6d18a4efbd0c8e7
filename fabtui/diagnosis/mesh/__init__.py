"""Rules about the ping mesh."""

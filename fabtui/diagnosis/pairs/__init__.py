"""Rules about pairs of endpoints."""

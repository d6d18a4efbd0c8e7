"""The view of one node."""

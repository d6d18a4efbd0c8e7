"""The view of one pair."""

"""Outputs that people already have in files: which command printed them, what they say, and the model they make."""

"""Colour ramps and themes."""

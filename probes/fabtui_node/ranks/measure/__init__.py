"""Measurements, as ranks run them."""

"""Copies of recordings and snapshots without names, addresses and serial numbers."""

"""Tests between ranks, common to all engines."""

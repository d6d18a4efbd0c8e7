"""Parsers of the kernel log."""

"""Parsers of NVIDIA tools."""

"""Parsers of network tools."""

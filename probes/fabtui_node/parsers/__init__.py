"""Parsers, one file per command or log: recognition and values of its output. Nothing here runs a command."""

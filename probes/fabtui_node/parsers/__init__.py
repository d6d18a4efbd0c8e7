"""Parsers of outputs of commands and of logs: recognition and values. Nothing here runs a command."""

"""Errors of the user, as opposed to errors on a node."""

from __future__ import annotations


class InputError(Exception):
    """Bad usage or input: the text is one line with the problem, its place and what to do."""

"""What the user got wrong, as opposed to what went wrong on a node."""

from __future__ import annotations


class InputError(Exception):
    """Bad usage or bad input: the text is one line that says what is wrong, where, and what to do about it."""

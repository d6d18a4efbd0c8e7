"""Feeds of a front end: live, replay, static."""

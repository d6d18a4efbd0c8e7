"""Rank hosts: start, liveness, recovery, teardown."""

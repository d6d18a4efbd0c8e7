"""Probes of IP networks."""

"""Measurements: p2p, world, collectives, retest, ping mesh, one-way, external tools."""

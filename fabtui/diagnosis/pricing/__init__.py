"""Prices of findings: the cost of a collective from the bandwidths of pairs (docs/price.md)."""

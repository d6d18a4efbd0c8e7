"""Nodes in network namespaces of this machine, the networks between them, and faults of these; needs root."""

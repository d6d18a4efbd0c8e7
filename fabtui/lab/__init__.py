"""Nodes made on this machine: SSH servers on loopback addresses, for the demo, the tests and a single host."""

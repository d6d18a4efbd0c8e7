"""Probes of InfiniBand and RoCE."""

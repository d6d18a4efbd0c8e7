"""Rank host and engines: NCCL for GPUs, gloo for CPU ranks."""

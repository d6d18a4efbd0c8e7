"""How ranks move data: gloo for CPU ranks, NCCL for GPUs, and what both have in common."""

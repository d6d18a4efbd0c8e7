"""Probes of running jobs: what their processes and NCCL's RAS service report."""

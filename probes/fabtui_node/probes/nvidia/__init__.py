"""Probes of NVIDIA GPUs and NVLink."""

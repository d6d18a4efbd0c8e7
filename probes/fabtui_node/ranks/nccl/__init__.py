"""NCCL through ctypes."""

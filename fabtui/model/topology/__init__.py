"""Leaf switches and NCCL interfaces."""

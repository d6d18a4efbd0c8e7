"""Outputs of Slurm."""

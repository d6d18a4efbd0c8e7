"""Probes of AMD GPUs."""

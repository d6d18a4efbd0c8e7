"""Nodes of jobs and pods: Slurm, PBS, LSF, Grid Engine, Flux, Cobalt and Kubernetes."""

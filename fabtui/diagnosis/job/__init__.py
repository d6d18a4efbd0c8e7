"""Judge of a running job, and readers of its sources: NCCL RAS, flight recorder, nodes."""

"""Who is behind in a running job: reports of NCCL RAS, flight recorder and nodes, and the verdict from all of them."""

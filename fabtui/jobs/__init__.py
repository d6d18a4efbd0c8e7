"""Running jobs: reports of NCCL RAS and of PyTorch's flight recorder, and which ranks are behind. Pure."""

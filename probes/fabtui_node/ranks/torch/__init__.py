"""PyTorch: gloo and NCCL."""

"""Parsers of the logs of NCCL."""

"""Parsers of InfiniBand and RDMA tools."""

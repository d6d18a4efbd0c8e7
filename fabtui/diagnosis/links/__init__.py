"""States of links and RDMA ports."""

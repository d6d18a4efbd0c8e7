"""Names that the simulated nodes and their clients share."""

NONCE = "played"
#: GPUs of each node.
GPUS = 8


def node_name(number: int) -> str:
    return f"n{number:03d}"

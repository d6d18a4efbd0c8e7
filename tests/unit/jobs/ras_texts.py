"""Reports of NCCL RAS: recorded ones, and of other versions with the lines of its source and invented values."""

from ..probes.places import SAMPLES


def recorded(name: str) -> str:
    """Return a report; those without a version in their name are answers of NCCL 2.28.9."""
    return (SAMPLES / "ras" / name).read_text()


#: One rank is missing, two are ahead, one is behind; the 28 others are not listed.
NCCL_2_27 = recorded("nccl-2.27-one-missing.txt")
#: The smaller side is ahead: those behind are not listed.
LEADERS_LISTED = recorded("nccl-2.30-leaders-listed.txt")
#: 2.24 counts all collectives together and lists missing ranks as ranges; the nodes differ in their processes.
NCCL_2_24 = recorded("nccl-2.24-all-together.txt")

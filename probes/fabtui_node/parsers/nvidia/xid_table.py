"""What the numbers of NVIDIA's Xid reports stand for, and where the fault lies. Data only."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional


class Xid(NamedTuple):
    """A kind of report.

    Attributes:
        meaning: What happened.
        blame: Where the fault lies: ``gpu`` (the device), ``memory`` (of the GPU), ``nvlink``, ``pcie``, ``driver``
            (driver or firmware), ``program`` (whatever ran on the GPU, unless several programs do it on one GPU),
            ``power``, ``result`` (it follows from another report) or ``note`` (nothing failed).
        bad: Whether the GPU needs a reset or worse before it can be trusted.
    """

    meaning: str
    blame: str
    bad: bool


XIDS: Dict[int, Xid] = {
    8: Xid("the GPU stopped working on its queue", "program", False),
    13: Xid("a program made the compute engine fail", "program", False),
    18: Xid("the bus cannot be mastered by the GPU", "pcie", True),
    31: Xid("a program touched memory that is not mapped for it", "program", False),
    32: Xid("the queue of commands was damaged on its way", "pcie", False),
    38: Xid("firmware of the driver failed", "driver", True),
    43: Xid("a program was stopped after a fault of its own", "program", False),
    44: Xid("the engine failed while it changed from one program to another", "driver", False),
    45: Xid("programs were ended because of another fault", "result", False),
    46: Xid("the GPU stopped answering", "gpu", True),
    48: Xid("a double bit error in memory, which cannot be corrected", "memory", True),
    54: Xid("the power cable of the GPU is not connected", "power", True),
    57: Xid("the link to the GPU's memory could not be set up", "memory", True),
    58: Xid("the link to the GPU's memory is unstable", "memory", True),
    59: Xid("an older controller in the GPU failed", "gpu", True),
    61: Xid("a controller in the GPU gave a warning", "gpu", True),
    62: Xid("a controller in the GPU halted", "gpu", True),
    63: Xid("a row of memory is remapped at the next reset", "memory", False),
    64: Xid("a row of memory could not be remapped", "memory", True),
    65: Xid("the video engine failed", "program", False),
    66: Xid("the driver used the GPU in a way that it does not allow", "driver", False),
    68: Xid("the video decoder failed", "program", False),
    69: Xid("a program gave the compute engine something it does not know", "program", False),
    74: Xid("an NVLink failed", "nvlink", True),
    79: Xid("the GPU is no longer on the PCI bus", "pcie", True),
    80: Xid("data for the GPU was damaged on its way", "pcie", True),
    92: Xid("single bits of memory are wrong very often", "memory", False),
    93: Xid("the GPU's own flash memory is written too often", "gpu", False),
    94: Xid("an error in memory hit one program only (contained)", "memory", False),
    95: Xid("an error in memory may have hit every program (uncontained)", "memory", True),
    109: Xid("changing from one program to another took too long", "program", False),
    110: Xid("the GPU refused for reasons of security", "gpu", True),
    119: Xid("the GPU's system processor (GSP) did not answer", "driver", True),
    120: Xid("the GPU's system processor (GSP) failed", "driver", True),
    121: Xid("an error on the link between processor and GPU was corrected", "nvlink", False),
    122: Xid("the GPU's flash memory could not be read", "gpu", False),
    123: Xid("the GPU's flash memory could not be written", "gpu", False),
    124: Xid("the GPU's flash memory and its contents do not agree", "gpu", False),
    125: Xid("the table in the GPU's flash memory is damaged", "gpu", False),
    136: Xid("training a link to memory or GPU failed", "nvlink", True),
    137: Xid("an access over NVLink was not allowed or did not arrive", "nvlink", False),
    140: Xid("an error in memory was not corrected", "memory", True),
    143: Xid("the GPU could not be initialized", "gpu", True),
    144: Xid("an NVLink failed: SAW", "nvlink", True),
    145: Xid("an NVLink failed: RLW", "nvlink", True),
    146: Xid("an NVLink failed: TLW", "nvlink", True),
    147: Xid("an NVLink failed: TREX", "nvlink", True),
    148: Xid("an NVLink failed: NVLPW", "nvlink", True),
    149: Xid("an NVLink failed: NETIR", "nvlink", True),
    150: Xid("an NVLink failed: MSE", "nvlink", True),
    151: Xid("the keys of an encrypted link could not be changed", "driver", False),
    154: Xid("the driver says what this GPU needs to recover", "result", False),
    155: Xid("an NVLink went down or another fault of NVLink was found by software", "nvlink", True),
    156: Xid("a part of the GPU was retired", "memory", False),
    157: Xid("a part of the GPU could not be retired", "memory", True),
    158: Xid("the GPU did not answer in time, for good", "gpu", True),
    160: Xid("a channel of memory was retired", "memory", False),
    161: Xid("a channel of memory could not be retired", "memory", True),
    162: Xid("smoothing of power is active again", "note", False),
    163: Xid("smoothing of power is not active", "note", False),
    164: Xid("the circuit that smoothes power is worn out", "power", False),
    166: Xid("a link failed in a mode for confidential computing", "nvlink", True),
    167: Xid("PCIe did not answer in time, for good", "pcie", True),
    168: Xid("the protected part of memory has errors", "memory", True),
    169: Xid("a controller in the GPU halted", "gpu", True),
    171: Xid("more on an error in memory outside the chip", "memory", False),
    172: Xid("more on an error in memory inside the chip", "memory", False),
    173: Xid("the link between processor and GPU failed", "nvlink", True),
}


def explain(code: Optional[int]) -> Optional[str]:
    """Return what a report stands for, None for a number that is not known here."""
    known = XIDS.get(code) if code is not None else None
    return known.meaning if known else None


def is_bad(code: int, text: str) -> bool:
    """Whether a report means that the GPU cannot be trusted; one of an NVLink says itself whether it was fatal."""
    known = XIDS.get(code)
    if known is None:
        return False
    if 144 <= code <= 150 and "nonfatal" in text.lower().replace("-", ""):
        return False
    return known.bad

"""Xid numbers: the names that NVIDIA gives them, and the part at fault. Data only."""

from __future__ import annotations

from typing import Dict, NamedTuple, Optional


class Xid(NamedTuple):
    """A kind of Xid report.

    Attributes:
        meaning: NVIDIA's name, then an explanation where the name needs one.
        blame: The part at fault: ``gpu`` (the device), ``memory`` (of the GPU), ``nvlink``, ``pcie``, ``driver``
            (driver or firmware), ``program`` (the program on the GPU, unless several programs do it on one GPU),
            ``power``, ``result`` (it follows from another report) or ``note`` (nothing failed).
        bad: Whether the GPU needs a reset or worse before it can be trusted.
    """

    meaning: str
    blame: str
    bad: bool


XIDS: Dict[int, Xid] = {
    8: Xid("GPU stopped processing: the GPU no longer works on its queue", "program", False),
    13: Xid("Graphics Engine Exception: caused by a program", "program", False),
    18: Xid("Bus mastering disabled in PCI Config Space", "pcie", True),
    31: Xid("GPU memory page fault: a program accessed unmapped memory", "program", False),
    32: Xid("Invalid or corrupted push buffer stream", "pcie", False),
    38: Xid("Driver firmware error", "driver", True),
    43: Xid("GPU stopped processing: a program was stopped after its own fault", "program", False),
    44: Xid("Graphics Engine fault during context switch", "driver", False),
    45: Xid("Preemptive cleanup, due to previous errors: programs were ended", "result", False),
    46: Xid("GPU stopped processing: the GPU no longer responds", "gpu", True),
    48: Xid("Double Bit ECC Error: uncorrectable", "memory", True),
    54: Xid("Auxiliary power is not connected to the GPU board", "power", True),
    57: Xid("Error programming video memory interface", "memory", True),
    58: Xid("Unstable video memory interface detected", "memory", True),
    59: Xid("Internal micro-controller error: older drivers", "gpu", True),
    61: Xid("Internal micro-controller breakpoint/warning", "gpu", True),
    62: Xid("Internal micro-controller halt", "gpu", True),
    63: Xid("ECC page retirement or row remapping recording event: remapped at the next reset", "memory", False),
    64: Xid("ECC page retirement or row remapper recording failure", "memory", True),
    65: Xid("Video processor exception", "program", False),
    66: Xid("Illegal access by driver", "driver", False),
    68: Xid("NVDEC0 Exception: video decoder", "program", False),
    69: Xid("Graphics Engine class error: caused by a program", "program", False),
    74: Xid("NVLINK Error", "nvlink", True),
    79: Xid("GPU has fallen off the bus", "pcie", True),
    80: Xid("Corrupted data sent to GPU", "pcie", True),
    92: Xid("High single-bit ECC error rate", "memory", False),
    93: Xid("Non-fatal violation of provisioned InfoROM wear limit", "gpu", False),
    94: Xid("Contained ECC error: one program affected", "memory", False),
    95: Xid("Uncontained ECC error: every program on the GPU may be affected", "memory", True),
    109: Xid("Context Switch Timeout Error", "program", False),
    110: Xid("Security Fault Error", "gpu", True),
    119: Xid("GSP RPC Timeout: GPU System Processor", "driver", True),
    120: Xid("GSP Error: GPU System Processor", "driver", True),
    121: Xid("C2C Link Error: corrected error between CPU and GPU", "nvlink", False),
    122: Xid("SPI PMU RPC Read Failure: flash memory of the GPU", "gpu", False),
    123: Xid("SPI PMU RPC Write Failure: flash memory of the GPU", "gpu", False),
    124: Xid("SPI PMU RPC Erase Failure: flash memory of the GPU", "gpu", False),
    125: Xid("Inforom FS Failure", "gpu", False),
    136: Xid("Link Training Failed", "nvlink", True),
    137: Xid("NVLink FLA privilege error: access over NVLink was not allowed or did not arrive", "nvlink", False),
    140: Xid("Unrecovered ECC Error", "memory", True),
    143: Xid("GPU Initialization Failure", "gpu", True),
    144: Xid("NVLINK: SAW Error", "nvlink", True),
    145: Xid("NVLINK: RLW Error", "nvlink", True),
    146: Xid("NVLINK: TLW Error", "nvlink", True),
    147: Xid("NVLINK: TREX Error", "nvlink", True),
    148: Xid("NVLINK: NVLPW_CTRL Error", "nvlink", True),
    149: Xid("NVLINK: NETIR Error", "nvlink", True),
    150: Xid("NVLINK: MSE Error", "nvlink", True),
    151: Xid("Key rotation Error: encrypted link", "driver", False),
    154: Xid("GPU Recovery Action Changed: shows how the GPU must be recovered", "result", False),
    155: Xid("NVLINK: SW Defined Error: for example a link that went down", "nvlink", True),
    156: Xid("Resource Retirement Event", "memory", False),
    157: Xid("Resource Retirement Failure", "memory", True),
    158: Xid("GPU Fatal Timeout", "gpu", True),
    160: Xid("Channel Retirement Event: memory channel", "memory", False),
    161: Xid("Channel Retirement Failure: memory channel", "memory", True),
    162: Xid("Power Smoothing HW Circuitry capability reengaged", "note", False),
    163: Xid("Power Smoothing HW Circuitry capability disengaged", "note", False),
    164: Xid("Power Smoothing HW Circuitry low lifetime reached", "power", False),
    166: Xid("CC traffic seen prior to link properties being configured for encrypted traffic", "nvlink", True),
    167: Xid("PCIE_FATAL_TIMEOUT", "pcie", True),
    168: Xid("Errors found in WPR: write protected region of memory", "memory", True),
    169: Xid("Internal micro-controller halt", "gpu", True),
    171: Xid("Additional to Xid 48, DRAM: details of an ECC error", "memory", False),
    172: Xid("Additional to Xid 48, SRAM: details of an ECC error", "memory", False),
    173: Xid("C2C Fatal Link Failure: link between CPU and GPU", "nvlink", True),
}


def explain(code: Optional[int]) -> Optional[str]:
    """Return the meaning of an Xid, or None if it is unknown."""
    return XIDS[code].meaning if code in XIDS else None


def is_bad(code: int, text: str) -> bool:
    """Return True if the GPU needs a reset or worse; an NVLink report states itself whether it was fatal."""
    nonfatal = 144 <= code <= 150 and "nonfatal" in text.lower().replace("-", "")
    return code in XIDS and XIDS[code].bad and not nonfatal

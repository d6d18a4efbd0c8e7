"""What ``nvidia-smi`` says when it cannot do its work, in any of its options."""

from __future__ import annotations

import re
from typing import Dict, List, Optional

from fabtui_node.parsers.base import Notes

_BUS = r"(?P<bus>[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-9a-f])"
_FLAGS = re.ASCII | re.IGNORECASE
# "GPU 0000:02:00.0", "GPU0: 0000:02:00.0", "GPU2" and "gpu 0000:02:00.0": the form changed with the drivers.
_HANDLE = (
    r"Unable to determine the device handle for gpu ?(?P<index>[0-9]{1,3}(?![0-9a-f:]*\.))?"
    r"(?:: ?(?=[0-9a-f]{4,8}:))? ?(?:" + _BUS + r")?: ?"
)

# Messages are wrapped by narrow consoles, so they are looked for in text whose space has been squeezed.
_ERRORS = [
    ("gpu_lost", re.compile(_HANDLE + r"(?P<why>(?:the )?GPU is lost)", _FLAGS)),
    (
        "device_handle",
        re.compile(
            _HANDLE
            + r"(?P<why>(?!(?:the )?GPU is lost)[^.: ][^.:]{0,80}?)(?=[.:]|$| Unable| NVIDIA| GPU [0-9]| [#$] )",
            _FLAGS,
        ),
    ),
    (
        "driver",
        re.compile(r"(?P<why>NVIDIA-SMI has failed because it couldn.?t communicate with the NVIDIA driver)", _FLAGS),
    ),
    (
        "version",
        re.compile(
            r"(?P<why>Failed to initialize NVML: (?:Driver/library version mismatch|[A-Za-z][A-Za-z/ ]{0,50}[A-Za-z]))"
            r"(?= NVML library| NVIDIA-SMI| GPU |[.:]|$| [#$] )",
            _FLAGS,
        ),
    ),
    (
        "library",
        re.compile(r"(?P<why>NVIDIA-SMI couldn.?t find libnvidia-ml\.so(?:\.[0-9])? library in your system)", _FLAGS),
    ),
    ("no_devices", re.compile(r"(?P<why>No devices were found)", _FLAGS)),
    ("requires_reset", re.compile(r"(?P<why>(?:NVML: )?GPU requires reset)", _FLAGS)),
    ("fallen_off", re.compile(r"(?P<why>GPU has fallen off the bus)(?! or)", _FLAGS)),
]


def parse_errors(text: str) -> List[Dict[str, Optional[str]]]:
    """Return ``[{"kind", "bus", "index", "reason"}]`` for the failures that ``nvidia-smi`` reports in its output.

    Kinds: ``gpu_lost``, ``device_handle`` (one GPU cannot be asked), ``driver`` (no driver runs), ``version`` (library
    and driver do not fit, or another failure of NVML as a whole), ``library`` (there is no NVML), ``no_devices``,
    ``requires_reset`` and ``fallen_off`` (one GPU, or one of several). ``bus`` is the PCI address and ``index`` the
    number, for the kinds that have one.
    """
    squeezed = " ".join(text.split())
    found: List[Dict[str, Optional[str]]] = []
    for kind, pattern in _ERRORS:
        for match in pattern.finditer(squeezed):
            groups = match.groupdict()
            error = {"kind": kind, "bus": groups.get("bus"), "index": groups.get("index")}
            error["reason"] = groups["why"].strip()
            if error not in found and len(found) < 256:
                found.append(error)
    return found


def complain(text: str, notes: Notes) -> List[Dict[str, Optional[str]]]:
    """Return ``parse_errors`` of a text, and make each a warning."""
    found = parse_errors(text)
    for error in found:
        where = error["bus"] or (error["index"] and "GPU " + error["index"])
        notes.warn(" ".join(filter(None, [where, error["reason"]])))
    return found

"""Transports between two ranks, by the names that NCCL, its network plug-ins, RCCL and gloo print.

NCCL names a connection ``P2P/CUMEM``, ``SHM/direct`` or ``NET/PLUGIN/DEVICE``; ``/GDRDMA`` follows where the NIC
accesses memory of the GPU directly. The plug-in's name shows the network: ``IB`` (in NCCL), ``IBext`` (HPC-X),
``gIB`` and ``FasTrak`` (Google), ``Libfabric`` and ``OFI`` (AWS, HPE), ``AINIC`` (AMD), ``UCX``, ``Socket``.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple, Optional, Pattern, Tuple

_GPUDIRECT = re.compile(r"gdrdma|gpudirect(?!-?tcpx)|\bgdr\b")
_UNNAMED = re.compile("$^")


class Path(IntEnum):
    """Paths of data between two ranks, as tables of pairs store them."""

    UNKNOWN = 0
    P2P = 1
    SHM = 2
    TCP = 3
    RDMA = 4  #: Through host memory.
    GPUDIRECT = 5
    GLOO = 6  #: TCP, by design: gloo has nothing faster.


#: Paths through NICs.
NETWORK = (Path.TCP, Path.RDMA, Path.GPUDIRECT)


class Transport(NamedTuple):
    """A kind of transport."""

    pattern: Pattern[str]  #: Names that it has, in lower case.
    path: Path  #: Path of the data; with GPUDirect RDMA, `Path.GPUDIRECT` replaces `Path.RDMA`.
    short: str  #: At most four characters, for a cell of a grid.
    word: str  #: A word or two, for a heading.
    sentence: str  #: What it is, for readers.
    #: What carries the bytes between nodes: ``RDMA``, ``TCP``, or None if the name does not show it.
    way: Optional[str] = None
    one_nic: bool = False  #: Whether a pair uses one NIC, whose rate limits it.


def _row(
    pattern: str, path: Path, short: str, word: str, sentence: str, way: Optional[str] = None, one_nic: bool = False
) -> Transport:
    return Transport(re.compile(pattern), path, short, word, sentence, way, one_nic)


#: Transports, those with narrower patterns first.
TRANSPORTS: Tuple[Transport, ...] = (
    _row("^nvls", Path.P2P, "NVLS", "NVLink SHARP", "NVLink SHARP: the NVSwitches reduce and multicast."),
    _row(
        "mnnvl", Path.P2P, "MNVL", "MNNVL",
        "Multi-node NVLink: GPUs of one NVLink domain access each other's memory across nodes.",
    ),
    _row(
        r"^(p2p|ipc|cumem)\b|nvlink|\bnvl\b", Path.P2P, "P2P", "P2P",
        "Peer to peer: a GPU accesses the memory of another over NVLink or PCIe.",
    ),
    _row(r"^shm\b|shared memory", Path.SHM, "SHM", "shared memory", "Shared memory: through the memory of the host."),
    _row(
        r"fastrak|tcpx", Path.RDMA, "TCPX", "GPUDirect-TCPX",
        "Google's plug-in for GPUDirect-TCPX and TCPXO (FasTrak): TCP without the kernel, into GPU memory.",
    ),
    _row(
        "socket", Path.TCP, "SOCK", "TCP", "TCP sockets: NCCL's last resort between nodes.", "TCP", True
    ),
    _row(r"\bgib\b", Path.RDMA, "gIB", "RDMA", "Google's plug-in gIB: RoCE over ConnectX NICs.", "RDMA", True),
    _row(r"^(net/)?ibext", Path.RDMA, "IB", "RDMA", "HPC-X's plug-in IBext: InfiniBand or RoCE.", "RDMA", True),
    _row("ainic", Path.RDMA, "AIN", "RDMA", "AMD's plug-in for its Pensando AI NICs: RoCE.", "RDMA", True),
    _row(r"^(net/)?ucx\b", Path.RDMA, "UCX", "UCX", "UCX: usually RDMA.", "RDMA", True),
    _row("collnet|sharp", Path.RDMA, "SHRP", "SHARP", "InfiniBand SHARP: the switches reduce.", "RDMA"),
    _row(
        r"\b(ofi|libfabric|efa)\b", Path.RDMA, "OFI", "libfabric",
        "A libfabric plug-in: EFA on AWS, Slingshot on HPE; it may use several NICs per GPU.",
    ),
    _row(
        r"^net/ib\b|^ib\b|ibverbs|roce|rdma", Path.RDMA, "IB", "RDMA", "RDMA over InfiniBand or RoCE.", "RDMA", True
    ),
    _row(r"^tcp$|gloo", Path.GLOO, "TCP", "TCP", "gloo over TCP.", "TCP", True),
    _row(r"\btcp\b", Path.TCP, "TCP", "TCP", "TCP.", "TCP", True),
)  # fmt: skip


@lru_cache(maxsize=4096)
def transport_of(name: Optional[str]) -> Transport:
    """Return the transport with a name; of several names, such as ``NET/IB/0 + P2P/IPC``, the first counts.

    An unknown name has the path `Path.UNKNOWN`, and its first characters as the short form.
    """
    text = (name or "").strip()
    lowered = _first(text).lower()
    for row in TRANSPORTS:
        if row.pattern.search(lowered):
            if row.path is Path.RDMA and _GPUDIRECT.search(lowered):
                # TCPX has a name of its own for it, and is not RDMA.
                direct = row._replace(path=Path.GPUDIRECT)
                return direct if "GPUDirect" in row.word else direct._replace(short="GDR", way="RDMA")
            return row
    shown = "".join(c for c in text if " " < c <= "~")
    return Transport(_UNNAMED, Path.UNKNOWN, shown[:4], text, "")


def path_of(name: Optional[str]) -> Path:
    return transport_of(name).path


def device_of(name: Optional[str]) -> str:
    """Return the device in a name such as ``NET/IB/mlx5_0/GDRDMA``, or "" without one."""
    parts = _first(name or "").split("/")
    return parts[2] if len(parts) > 2 and parts[0] == "NET" else ""


def _first(text: str) -> str:
    return text.split(" + ", 1)[0].split(", ", 1)[0]

"""The one table of transports, and all that names, colours, limits or judges by it."""

import pytest

from fabtui.presentation.cell_levels import CellStyle, transport_style
from fabtui_node.parsers.nccl.transports import TRANSPORTS, Path, device_of, path_of, transport_of

#: Name, path, short form, what carries the bytes, whether one NIC limits it, colour.
NAMES = [
    ("P2P/CUMEM", Path.P2P, "P2P", None, False, CellStyle.P2P),
    ("P2P/direct pointer/read", Path.P2P, "P2P", None, False, CellStyle.P2P),
    ("P2P/indirect/3[3]", Path.P2P, "P2P", None, False, CellStyle.P2P),
    ("P2P/MNNVL", Path.P2P, "MNVL", None, False, CellStyle.P2P),
    ("CUMEM", Path.P2P, "P2P", None, False, CellStyle.P2P),
    ("IPC/read", Path.P2P, "P2P", None, False, CellStyle.P2P),
    ("NVLS", Path.P2P, "NVLS", None, False, CellStyle.P2P),
    ("SHM/direct/direct", Path.SHM, "SHM", None, False, CellStyle.SHM),
    ("NET/Socket/eth0", Path.TCP, "SOCK", "TCP", True, CellStyle.SOCKET),
    ("NET/FastSocket/0", Path.TCP, "SOCK", "TCP", True, CellStyle.SOCKET),
    ("NET/IB/mlx5_0", Path.RDMA, "IB", "RDMA", True, CellStyle.RDMA),
    ("NET/IB/0/GDRDMA", Path.GPUDIRECT, "GDR", "RDMA", True, CellStyle.RDMA),
    ("NET/IB/mlx5_0/GDRDMA/PXN", Path.GPUDIRECT, "GDR", "RDMA", True, CellStyle.RDMA),
    ("NET/IBext_v10/0", Path.RDMA, "IB", "RDMA", True, CellStyle.RDMA),
    ("NET/IBext/0/GDRDMA", Path.GPUDIRECT, "GDR", "RDMA", True, CellStyle.RDMA),
    ("NET/gIB/0", Path.RDMA, "gIB", "RDMA", True, CellStyle.RDMA),
    ("NET/AINIC/0", Path.RDMA, "AIN", "RDMA", True, CellStyle.RDMA),
    ("UCX", Path.RDMA, "UCX", "RDMA", True, CellStyle.RDMA),
    ("NET/UCX/0", Path.RDMA, "UCX", "RDMA", True, CellStyle.RDMA),
    # libfabric may run over TCP, and uses several NICs.
    ("NET/OFI/0", Path.RDMA, "OFI", None, False, CellStyle.RDMA),
    ("NET/OFI/0/GDRDMA", Path.GPUDIRECT, "GDR", "RDMA", False, CellStyle.RDMA),
    ("NET/AWS Libfabric/0", Path.RDMA, "OFI", None, False, CellStyle.RDMA),
    ("NET/Libfabric/0/GDRDMA", Path.GPUDIRECT, "GDR", "RDMA", False, CellStyle.RDMA),
    ("NET/FasTrak/0/GDRDMA", Path.GPUDIRECT, "TCPX", None, False, CellStyle.RDMA),
    ("NET/GPUDirectTCPX_v7/0/GDRDMA", Path.GPUDIRECT, "TCPX", None, False, CellStyle.RDMA),
    # NCCL names GPUDirect of any plug-in; without it, data goes through host memory.
    ("NET/FasTrak/0", Path.RDMA, "TCPX", None, False, CellStyle.RDMA),
    ("RDMA", Path.RDMA, "IB", "RDMA", True, CellStyle.RDMA),
    ("TCP", Path.GLOO, "TCP", "TCP", True, CellStyle.SOCKET),
    ("gloo tcp", Path.GLOO, "TCP", "TCP", True, CellStyle.SOCKET),
    # The first of several counts: it is the worst.
    ("NET/Socket/eth0 + P2P/IPC", Path.TCP, "SOCK", "TCP", True, CellStyle.SOCKET),
    ("NET/IB/mlx5_0, NET/Socket/eth0", Path.RDMA, "IB", "RDMA", True, CellStyle.RDMA),
    ("NET/Pigeon/0", Path.UNKNOWN, "NET/", None, False, CellStyle.OTHER),
    ("\x1b[31mpigeon", Path.UNKNOWN, "[31m", None, False, CellStyle.OTHER),
    (None, Path.UNKNOWN, "", None, False, CellStyle.OTHER),
    ("", Path.UNKNOWN, "", None, False, CellStyle.OTHER),
]


@pytest.mark.parametrize(("name", "path", "short", "way", "one_nic", "slot"), NAMES)
def test_a_transport_by_its_name(
    name: str | None, path: Path, short: str, way: str | None, one_nic: bool, slot: CellStyle
) -> None:
    found = transport_of(name)
    assert (found.path, found.short, found.way, found.one_nic) == (path, short, way, one_nic)
    assert path_of(name) is path
    assert transport_style(name or "") == (slot, short)


def test_short_forms_fit_into_a_cell_and_sentences_end() -> None:
    for row in TRANSPORTS:
        assert 0 < len(row.short) <= 4
        assert row.word
        assert row.sentence.endswith(".")


@pytest.mark.parametrize(
    ("name", "device"),
    [
        ("NET/IB/mlx5_0/GDRDMA", "mlx5_0"),
        ("NET/AWS Libfabric/0", "0"),
        ("NET/Socket/eth0 + P2P/IPC", "eth0"),
        ("P2P/direct/x", ""),
        ("NET/IB", ""),
        (None, ""),
    ],
)
def test_the_device_of_a_transport(name: str | None, device: str) -> None:
    assert device_of(name) == device

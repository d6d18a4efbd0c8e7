"""Any output of a node: a parser never raises, and its result fits into a message.

The formats that users and probes have in common are in `test_any_format`.
"""

from __future__ import annotations

import functools
import json
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fabtui_node import protocol
from fabtui_node.parsers.net import ping as ping_format
from fabtui_node.parsers.nvidia import smi_nvlink as nvlink_format
from fabtui_node.parsers.nvidia import values as nvidia_values
from fabtui_node.probes import firewall, host, inventory
from fabtui_node.probes.nvidia import nvml
from fabtui_node.probes.rdma import ibstat, port_counters, ports
from fabtui_node.system import cgroups, drivers, interpreters, machine, rdma_devices, sysfs

from ...effort import examples
from .places import SAMPLES

pytestmark = pytest.mark.fuzz

PARSERS: list[Callable[[str], Any]] = [
    drivers.parse_cmdline,
    drivers.parse_modules,
    drivers.parse_nvidia_version,
    drivers.parse_release,
    firewall.parse_iptables,
    firewall.parse_nft,
    host.parse_port_range,
    cgroups.parse_groups,
    cgroups.parse_mounts,
    cgroups.parse_numbers,
    machine.parse_chosen,
    cgroups.parse_cpu_max,
    machine.parse_cpuinfo,
    machine.parse_meminfo,
    ports.ipv4,
    ibstat.parse_ibstat,
    inventory.parse_meminfo,
    inventory.parse_os_release,
    drivers.parse_ldconfig,
    nvml.bus_id,
    nvidia_values.parse_errors,
    nvlink_format.parse_nvlink_errors,
    nvlink_format.parse_nvlink_status,
    port_counters.lanes,
    ping_format.parse_fping,
    ping_format.parse_ping,
    interpreters.parse_inspection,
    rdma_devices.parse_rate,
    rdma_devices.parse_state,
    rdma_devices.port_guid,
    sysfs.to_integer,
]

#: Pieces that long lines are made of, here and in `test_any_format`.
PIECES = ["9", "9.", "9 ", "- ", "a: ", "GPU 0: ", "Packet ", "[", "{", "\n", " : 1.0 ", "GPU is lost"]
PIECES += ["GUID 0x1 port 1:", "[1]", "(", "'", '"', "0x", "#", "==(", "\t1", " 4X", "| "]
PIECES += ["1 1 float ", "NCCL INFO ", "NodeName=", "a=b ", "[0] a | ", "-E- ", '{"a":', "rank 0: 1 ", " = ", "(1, 2)"]

IP_ADDR = json.dumps(
    [{"ifname": "eth0", "linkinfo": {"info_kind": "veth"}, "addr_info": [{"local": "192.0.2.1", "prefixlen": 24}]}]
)

numbers = st.sampled_from(["9" * 5000, "-1", "0", "1e999", "nan", "٣", "0x", "\x00", "½", "18446744073709551616"])


@functools.cache
def recorded() -> list[str]:
    more = [IP_ADDR, "fe800000000000000000000000000001 02 40 20 80 eth0\n", 'fabtui-python:{"version": "3.11.2"}\n']
    return [path.read_text() for path in sorted(SAMPLES.glob("*/*.txt"))] + more


@functools.cache
def pieces() -> list[str]:
    return [line for text in recorded() for line in text.splitlines()[:40]]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Lines of real outputs, cut, shuffled and with numbers that no one expects."""
    lines = draw(st.lists(st.sampled_from(pieces()) | st.text(max_size=40), max_size=12))
    text = draw(st.sampled_from(["\n", "\r\n", " ", ""])).join(lines)
    for _ in range(draw(st.integers(0, 3))):
        digit = draw(st.sampled_from("0123456789"))
        text = text.replace(digit, draw(numbers), 2)
    start = draw(st.integers(0, 30))
    return text[start : start + draw(st.integers(0, 5000))]


def ends_soon(read: Callable[[str], Any]) -> None:
    """Read long lines: 5 ms each, and at most 0.1 s; a pattern that starts again at each character takes a minute."""
    for piece in PIECES:
        text = piece * (100_000 // len(piece) if piece.strip() else 20_000)
        began = time.process_time()
        read(text)
        assert time.process_time() - began < 2, piece


def check(parser: Callable[[str], Any], text: str) -> None:
    try:
        protocol.encode({"value": parser(text)})
    except Exception as error:
        error.add_note(f"{parser.__module__}.{parser.__qualname__} of {text[:2000]!r}")
        raise


@given(text=st.text())
@settings(max_examples=examples(5))
def test_any_text(text: str) -> None:
    for parser in PARSERS:
        check(parser, text)


@given(text=damaged())
@settings(max_examples=examples(10))
def test_damaged_outputs(text: str) -> None:
    for parser in PARSERS:
        check(parser, text)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.__name__)
def test_every_output_in_every_parser(parser: Callable[[str], Any]) -> None:
    for text in recorded():
        check(parser, text)


@pytest.mark.parametrize("parser", PARSERS, ids=lambda parser: parser.__name__)
def test_long_lines_end_soon(parser: Callable[[str], Any]) -> None:
    ends_soon(parser)

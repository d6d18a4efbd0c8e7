"""Foreign and long texts: a parser of a probe and a format never raise, and the result fits into a message."""

import functools
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtui.importers import catalogue
from fabtui_node import protocol
from fabtui_node.parsers import base
from fabtui_node.probes import firewall, host, inventory
from fabtui_node.probes.nvidia import nvml
from fabtui_node.probes.rdma import port_counters, ports
from fabtui_node.system import cgroups, drivers, interpreters, machine, rdma_devices, sysfs

from .places import REAL, SAMPLES

pytestmark = pytest.mark.fuzz

#: What reads a text, by its name: parsers that probes alone use, and all formats.
READERS: dict[str, Callable[[str], Any]] = {
    f"{reader.__module__.rpartition('.')[2]}.{reader.__name__}": reader
    for reader in (
        *(drivers.parse_cmdline, drivers.parse_modules, drivers.parse_nvidia_version, drivers.parse_release),
        *(drivers.parse_ldconfig, firewall.parse_iptables, firewall.parse_nft, host.parse_port_range),
        *(cgroups.parse_groups, cgroups.parse_mounts, cgroups.parse_numbers, cgroups.parse_cpu_max),
        *(machine.parse_chosen, machine.parse_cpuinfo, machine.parse_meminfo, ports.ipv4, nvml.bus_id),
        *(inventory.parse_meminfo, inventory.parse_os_release, interpreters.parse_inspection, port_counters.lanes),
        *(rdma_devices.parse_rate, rdma_devices.parse_state, rdma_devices.port_guid, sysfs.to_integer),
    )
}
_LONGEST = 12_000

#: Pieces that long lines are made of.
PIECES = ["9", "9.", "9 ", "- ", "a: ", "GPU 0: ", "Packet ", "[", "{", "\n", " : 1.0 ", "GPU is lost"]
PIECES += ["GUID 0x1 port 1:", "[1]", "(", "'", '"', "0x", "#", "==(", "\t1", " 4X", "| "]
PIECES += ["1 1 float ", "NCCL INFO ", "NodeName=", "a=b ", "[0] a | ", "-E- ", '{"a":', "rank 0: 1 ", " = ", "(1, 2)"]

IP_ADDR = json.dumps(
    [{"ifname": "eth0", "linkinfo": {"info_kind": "veth"}, "addr_info": [{"local": "192.0.2.1", "prefixlen": 24}]}]
)


@functools.cache
def recorded() -> list[str]:
    more = [IP_ADDR, "fe800000000000000000000000000001 02 40 20 80 eth0\n", 'fabtui-python:{"version": "3.11.2"}\n']
    paths = [path for path in sorted(SAMPLES.rglob("*.*")) if path.suffix in (".txt", ".net", ".json", ".log")]
    paths += [path for path in sorted(REAL.glob("*/*")) if path.is_file()]
    return [path.read_bytes().decode("utf-8", "replace")[:_LONGEST] for path in paths] + more


def ends_soon(read: Callable[[str], Any]) -> None:
    """Read long lines: 5 ms each, and at most 0.1 s; a pattern that starts again at each character takes a minute."""
    for piece in PIECES:
        text = piece * (100_000 // len(piece) if piece.strip() else 20_000)
        began = time.process_time()
        read(text)
        assert time.process_time() - began < 2, piece


def read(form: base.Format, text: str) -> base.Reading:
    """Return what a format makes of a text, with the bounds that every reading keeps."""
    assert 0.0 <= form.likely(text[:65536]) <= 1.0
    reading = form.parse(text)
    assert max(len(reading.warnings), len(reading.unknown)) <= base.UNKNOWN_LINES
    assert all(len(line) <= base.UNKNOWN_WIDTH for line in (*reading.warnings, *reading.unknown))
    return reading


READERS |= {name: functools.partial(read, form) for name, form in catalogue.formats().items()}
each = pytest.mark.parametrize("name", READERS)


def check(name: str, text: str) -> None:
    try:
        protocol.encode({"value": READERS[name](text)})
    except Exception as error:
        error.add_note(f"{name} of {text[:2000]!r}")
        raise


@each
def test_every_output_in_every_reader(name: str) -> None:
    for text in recorded():
        check(name, text)


@each
def test_long_lines_end_soon(name: str) -> None:
    ends_soon(functools.partial(check, name))


@pytest.mark.parametrize("path", [pytest.param(path, id=path.name) for path in sorted((SAMPLES / "ibsim").glob("*.*"))])
def test_a_sample_is_known_by_its_command(path: Path) -> None:
    """The first line of a sample names the command."""
    first, _, text = path.read_text().partition("\n")
    if not first.startswith("# SIM_HOST="):
        return
    command = Path(first.partition("libumad2sim.so ")[2].removeprefix("timeout ").lstrip("0123456789 ").split()[0]).name
    if command == "rdma":
        command = "rdma-link"
    if command in ("ibhosts", "ibswitches", "ibnodes"):
        command = "ibnodes"
    if command == "ib_write_bw" or path.name in ("ibstat_l.txt", "ibstat_p.txt", "perfquery_clear.txt"):
        return
    ranked = sorted(((form.likely(text), name) for name, form in catalogue.formats().items()), reverse=True)
    if "Failed to get IB devices" in text:
        assert ranked[0] == (0.4, "ibv_devinfo")
    else:
        assert ranked[0][1] == command, ranked[:3]
        assert ranked[0][0] > ranked[1][0]

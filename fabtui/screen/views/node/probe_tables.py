"""Tables of the inventory and of probes. Values come from the node and may have any shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fabtui.model.facts.compare import shown
from fabtui.model.facts.node_view import dicts, field, single
from fabtui.model.session_model import NodeRecord
from fabtui.presentation.cell_levels import bytes_text
from fabtui.presentation.preflight_lines import UNICODE
from fabtui.presentation.wording import MUTED, Part
from fabtui.presentation.wrapping import Lines
from fabtui.sanitize import one_line
from fabtui.screen.views.detail_base import pairs, section, table
from fabtui.screen.widgets.finding_lines import STYLES
from fabtui_node import registry
from fabtui_node.parsers.nvidia.smi_nvlink import ERRORS

_LIMIT = 200


def declared_lines(results: Mapping[str, Mapping[str, Any]]) -> Lines:
    """Return a table for each probe that declares one (`ProbeSpec.view`)."""
    lines: Lines = []
    for spec in registry.PROBES.values():
        if not spec.view or not (value := results.get(spec.name)):
            continue
        rows = [
            (label, shown(single(field(value, *path.split("."))), spec.units.get(path, "")))
            for label, path in spec.view
        ]
        lines += section(spec.name, spec.title) + pairs(rows, max(12, *(len(label) for label, _ in rows)))
    return lines


def text_of(value: Any, limit: int = _LIMIT) -> str:
    """Return a value as text; ``-`` if it is not known."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(str(value), limit)


def size_text(value: Any) -> str:
    """Return a number of bytes, in GiB."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return "-"
    return f"{value / 2**30:.1f} GiB"


def _limit_text(value: Any, *, size: bool = False) -> str:
    soft = field(value, "soft")
    if soft is None:
        return "-"
    if size and isinstance(soft, int) and soft >= 0:
        return bytes_text(soft)
    return "unlimited" if soft == -1 else text_of(soft)


def system_lines(inventory: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the properties of the system with their names."""
    rows = [
        ("host", text_of(inventory.get("host"))),
        ("system", f"{text_of(inventory.get('os'))}, kernel {text_of(inventory.get('kernel'))}"),
        ("CPUs", f"{text_of(inventory.get('cpus'))}, memory {size_text(inventory.get('memory'))}"),
        ("driver", f"{text_of(inventory.get('driver'))}, CUDA {text_of(inventory.get('cuda'))}"),
        ("memlock", _limit_text(field(inventory, "limits", "memlock"), size=True)),
        ("open files", _limit_text(field(inventory, "limits", "nofile"))),
    ]
    tools = inventory.get("tools")
    if isinstance(tools, dict):
        rows.append(("tools", one_line(", ".join(str(name) for name, path in tools.items() if path), 300) or "-"))
    addresses = [
        f"{text_of(entry.get('address'), 60)} ({text_of(entry.get('nic'), 30)}, rail {text_of(entry.get('rail'), 8)})"
        for entry in dicts(inventory.get("data_addresses"))
    ]
    rows.append(("addresses", ", ".join(addresses) or "-"))
    if inventory.get("nvml_error"):
        rows.append(("NVML", text_of(inventory["nvml_error"])))
    environment = inventory.get("env")
    if isinstance(environment, dict):
        rows += [("env", one_line(f"{name}={value}", 300)) for name, value in environment.items()]
    return rows


def _state_of(gpu: dict[str, Any], gpus_probe: dict[str, Any] | None) -> dict[str, Any]:
    """Return the latest probe result of a GPU of the inventory, by its PCI bus."""
    found = dicts((gpus_probe or {}).get("gpus"))
    bus = str(gpu.get("bus") or "").lower()
    return next((one for one in found if bus and str(one.get("bus") or "").lower() == bus), {})


def _measured_text(value: Any, unit: str) -> str:
    return f"{value:.0f} {unit}" if isinstance(value, (int, float)) and not isinstance(value, bool) else "-"


def gpu_lines(inventory: dict[str, Any], gpus_probe: dict[str, Any] | None = None) -> Lines:
    """Return the table of GPUs: inventory and latest probe result."""
    rows = []
    styles: dict[tuple[int, int], str] = {}
    for at, gpu in enumerate(dicts(inventory.get("gpus"))):
        gen, best = field(gpu, "pcie", "gen"), field(gpu, "pcie", "gen_max")
        width, widest = field(gpu, "pcie", "width"), field(gpu, "pcie", "width_max")
        link = f"gen{text_of(gen)} x{text_of(width)}" if gen is not None or width is not None else "-"
        if isinstance(width, int) and isinstance(widest, int) and width < widest:
            link += f" of gen{text_of(best)} x{widest}"
            styles[at, 7] = "$warning"
        if gpu.get("error"):
            styles[at, 11] = "$error"
        state = _state_of(gpu, gpus_probe)
        hot, limit = state.get("temperature"), state.get("temperature_slowdown")
        if isinstance(hot, (int, float)) and isinstance(limit, (int, float)) and hot >= limit - 5:
            styles[at, 4] = "bold $warning"
        used = state.get("memory_used", gpu.get("memory_used"))
        rows.append(
            [
                text_of(gpu.get("index")),
                text_of(gpu.get("name"), 40).removeprefix("NVIDIA "),
                text_of(gpu.get("bus")),
                _measured_text(state.get("utilization"), "%"),
                _measured_text(hot, "C"),
                f"{size_text(used)} of {size_text(gpu.get('memory'))}",
                str(len(dicts(gpu.get("processes"))) or "-"),
                link,
                f"{text_of(gpu.get('nic'))} {text_of(gpu.get('nic_path'))}".replace("- -", "-"),
                text_of(gpu.get("numa")),
                "MIG" if gpu.get("mig") else "",
                text_of(gpu.get("error")),
                text_of(gpu.get("uuid")),
            ]
        )
    if not rows:
        found = inventory.get("pci_gpus")
        if isinstance(found, list) and found:
            text = f"  {len(found)} NVIDIA GPUs on PCI, but none visible to the driver"
            return [*section("GPUs"), [(text, "$warning")]]
        return []
    headings = [
        "GPU",
        "name",
        "PCI",
        "utilization",
        "temperature",
        "memory",
        "processes",
        "PCIe",
        "nearest NIC",
        "NUMA",
    ]
    headings += ["", "problem", "UUID"]
    return section("GPUs") + table(headings, rows, styles)


def process_lines(inventory: dict[str, Any]) -> Lines:
    """Return the table of processes that use a GPU."""
    rows = []
    for gpu in dicts(inventory.get("gpus")):
        for process in dicts(gpu.get("processes")):
            rows.append(
                [
                    text_of(gpu.get("index")),
                    text_of(process.get("pid")),
                    text_of(process.get("user")),
                    text_of(process.get("name")),
                    size_text(process.get("memory")),
                ]
            )
    if not rows:
        return []
    styles = {(at, column): "$warning" for at in range(len(rows)) for column in range(5)}
    return section("processes on its GPUs") + table(["GPU", "process", "user", "name", "memory"], rows, styles)


def nic_lines(inventory: dict[str, Any]) -> Lines:
    """Return the table of network interfaces."""
    rows = []
    for nic in dicts(inventory.get("nics")):
        if nic.get("kind") == "loopback":
            continue
        addresses = ", ".join(text_of(entry.get("address"), 60) for entry in dicts(nic.get("addresses")))
        speed = nic.get("speed_mbps")
        rows.append(
            [
                text_of(nic.get("name")),
                text_of(nic.get("state")),
                f"{speed / 1000:g} Gb/s" if isinstance(speed, (int, float)) else "-",
                text_of(nic.get("mtu")),
                text_of(nic.get("link_kind") or nic.get("kind")),
                text_of(nic.get("rdma")),
                text_of(nic.get("numa")),
                text_of(nic.get("bus")),
                addresses or "-",
            ]
        )
    headings = ["interface", "state", "speed", "MTU", "kind", "RDMA", "NUMA", "PCI", "addresses"]
    return section("network interfaces") + table(headings, rows) if rows else []


def ib_lines(ibstat: dict[str, Any] | None, inventory: dict[str, Any] | None) -> Lines:
    """Return the table of InfiniBand and RoCE ports: from the probe ibstat, else from the inventory."""
    rows: list[list[str]] = []
    styles: dict[tuple[int, int], str] = {}
    source = "inventory"
    cas = dicts((ibstat or {}).get("cas"))
    if cas:
        source = text_of((ibstat or {}).get("source"))
        for ca in cas:
            for port in dicts(ca.get("ports")):
                rows.append(_port_row(ca, port, port.get("physical_state"), port.get("guid")))
    else:
        rows = [_port_row(port, port, port.get("phys_state"), None) for port in dicts((inventory or {}).get("ib"))]
    for at, row in enumerate(rows):
        if row[2] != "Active":
            styles[at, 2] = "bold $warning"
        if row[3] not in ("LinkUp", "-"):
            styles[at, 3] = "bold $warning"
    headings = ["device", "port", "state", "physical", "Gb/s", "link layer", "LID", "SM LID", "firmware", "GUID"]
    return section("InfiniBand and RoCE ports", f"from {source}") + table(headings, rows, styles) if rows else []


def _port_row(device: dict[str, Any], port: dict[str, Any], physical: Any, guid: Any) -> list[str]:
    rate = port.get("rate")
    return [
        text_of(device.get("ca")),
        text_of(port.get("port")),
        text_of(port.get("state")),
        text_of(physical),
        f"{rate:g}" if isinstance(rate, (int, float)) else text_of(rate),
        text_of(port.get("link_layer")),
        text_of(port.get("lid")),
        text_of(port.get("sm_lid")),
        text_of(device.get("firmware")),
        text_of(guid),
    ]


def _place_of(gpu: dict[str, Any], link: dict[str, Any]) -> tuple[str, str]:
    """Return the identity of a link: UUID or index of its GPU, and its number."""
    return text_of(gpu.get("uuid") or gpu.get("index")), text_of(link.get("link"))


def nvlink_lines(nvlink: dict[str, Any] | None, first: dict[str, Any] | None) -> Lines:
    """Return the table of NVLinks: one line per GPU, and one per link that is inactive or has errors."""
    gpus = dicts((nvlink or {}).get("gpus"))
    if not gpus:
        return []
    before = {
        _place_of(gpu, link): link for gpu in dicts((first or {}).get("gpus")) for link in dicts(gpu.get("links"))
    }
    rows, styles, odd = [], {}, []
    for at, gpu in enumerate(gpus):
        links = dicts(gpu.get("links"))
        active = sum(1 for link in links if link.get("state") == "active")
        speeds = sorted({link["speed"] for link in links if isinstance(link.get("speed"), (int, float))})
        totals: dict[str, int] = {}
        for link in links:
            for name, value in counters(link).items():
                totals[name] = totals.get(name, 0) + value
            odd += _odd_link(gpu, link, before.get(_place_of(gpu, link)))
        if links and active < len(links):
            styles[at, 1] = "bold $warning"
        if any(totals.values()):
            styles[at, 3] = "$warning"
        rows.append(
            [
                text_of(gpu.get("index")),
                f"{active} of {len(links)}",
                ", ".join(f"{speed:g}" for speed in speeds) or "-",
                ", ".join(f"{name} {value}" for name, value in totals.items()) or "-",
                text_of(gpu.get("message")),
            ]
        )
    lines = section("NVLink", f"from {text_of((nvlink or {}).get('source'))}")
    lines += table(["GPU", "links active", "GB/s per link", "errors of all links", "message"], rows, styles)
    return lines + odd


def counters(link: dict[str, Any]) -> dict[str, int]:
    """Return the error counters of a link. Traffic and corrected errors grow on healthy links too."""
    found = link.get("counters")
    if not isinstance(found, dict):
        return {}
    return {k: v for k, v in found.items() if k in ERRORS and isinstance(v, int) and not isinstance(v, bool)}


def _odd_link(gpu: dict[str, Any], link: dict[str, Any], old: dict[str, Any] | None) -> Lines:
    """Return a line for a link that is inactive or has errors."""
    now, was = counters(link), counters(old or {})
    counted = {name: value for name, value in now.items() if value}
    if link.get("state") == "active" and not counted:
        return []
    parts: list[Part] = [(f"    GPU {text_of(gpu.get('index'))} link {text_of(link.get('link'))}  ", MUTED)]
    state = text_of(link.get("state"))
    parts.append((f"{state:<10}", "" if state == "active" else "bold $warning"))
    for name, value in counted.items():
        grown = value - was.get(name, value)
        parts.append((f" {name} {value}", ""))
        if grown > 0:
            parts.append((f" (+{grown} since session start)", "bold $warning"))
    return [parts]


def library_lines(inventory: dict[str, Any]) -> Lines:
    """Return the tables of Pythons and NCCL libraries."""
    lines: Lines = []
    rows = [
        [
            text_of(entry.get("path")),
            text_of(entry.get("version")),
            text_of(entry.get("torch")),
            text_of(entry.get("torch_cuda")),
            text_of(entry.get("nccl_version")),
            text_of(entry.get("error"), 80),
        ]
        for entry in dicts(inventory.get("pythons"))
    ]
    if rows:
        headings = ["Python", "version", "torch", "torch CUDA", "torch NCCL", "problem"]
        lines += section("Pythons") + table(headings, rows)
    rows = [[text_of(entry.get("path")), text_of(entry.get("version"))] for entry in dicts(inventory.get("nccl"))]
    if rows:
        lines += section("system NCCL libraries") + table(["path", "version"], rows)
    return lines


def user_probe_lines(record: NodeRecord) -> Lines:
    """Return the results of the user's probes on a node."""
    lines: Lines = []
    for probe, result in record.probe_results.items():
        if result.get("own") is not True:
            continue
        lines += section(f"your probe {one_line(probe, 40)}", one_line(str(result.get("title") or ""), 100))
        if result.get("problem"):
            lines.append([("  failed: ", MUTED), (one_line(str(result["problem"]), 300), "$warning")])
        units, value = result.get("units"), result.get("value")
        named = units if isinstance(units, dict) else {}
        values = value.items() if isinstance(value, dict) else []
        rows = [(one_line(str(name), 30), one_line(f"{one} {named.get(name, '')}", 300)) for name, one in values]
        lines += pairs(rows, max([12, *(len(name) for name, _ in rows)]))
        for one in dicts(result.get("judged")):
            verdict = str(one.get("verdict"))
            mark = f"  {UNICODE.of(verdict)} " if verdict != "note" else "  "
            lines.append(
                [(mark, STYLES.get(verdict, "")), (one_line(str(one.get("text")), 300), STYLES.get(verdict, ""))]
            )
    return lines

"""View of a node: state, rows and columns, differences, and tables of its inventory and probes.

Values come from the node and may have any shape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar

from textual.binding import BindingType

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.knowledge import xids
from fabtui.diagnosis.links.link_rules import error_counters
from fabtui.diagnosis.preflight.checks import Preflight
from fabtui.model.endpoints import Endpoint, node_of
from fabtui.model.facts.compare import shown
from fabtui.model.facts.node_view import Entry, dicts, field, single, yes
from fabtui.model.layers import Layer
from fabtui.model.measurement import worst
from fabtui.model.session_model import Model, NodeRecord
from fabtui.nodeset import count
from fabtui.presentation.cell_levels import UNICODE, Glyphs, style_of
from fabtui.presentation.wording import (
    MUTED,
    Part,
    clock_text,
    common_domain,
    retry_text,
    state_style,
    time_text,
    verdict_style,
)
from fabtui.presentation.wrapping import Lines, section
from fabtui.sanitize import clean, one_line
from fabtui.screen import session_actions
from fabtui.screen.grid.axis import fit_text
from fabtui.screen.keys import shortcut
from fabtui.screen.views.detail_base import Cell, SteppedScreen, pairs, table_section
from fabtui.screen.widgets.finding_lines import STYLES, odd_lines, problem_lines
from fabtui.screen.widgets.sparkline import cells_strip, merged
from fabtui_node import registry
from fabtui_node.parsers.lines import bytes_text
from fabtui_node.parsers.nvidia.smi_nvlink import is_card

_RAW_LIMIT = 60_000


class NodeScreen(SteppedScreen):
    """A node: state, inventory, links, counters and raw probe output."""

    BINDING_GROUP_TITLE = "Node"
    BINDINGS: ClassVar[list[BindingType]] = [
        shortcut("n,right_square_bracket", "other(1)", "node.next", "show the next node", "next node"),
        shortcut("p,left_square_bracket", "other(-1)", "node.previous", "show the previous node", "previous node"),
        shortcut("r", "probe", "node.look", "probe the node again", "probe again"),
        shortcut("y", "copy", "node.copy", "copy the text of this view", "copy"),
    ]

    def __init__(self, node: str) -> None:
        super().__init__()
        self.node = node

    @property
    def crumb(self) -> str:
        return one_line(self.node, 80)

    def _record(self) -> NodeRecord | None:
        return self.context.model.nodes.get(self.node)

    def title_parts(self) -> list[Part]:
        record = self._record()
        parts: list[Part] = [(f" {one_line(self.node, 80)} ", "bold"), ("  ", "")]
        if record is not None:
            parts.append((str(record.state), state_style(record.state)))
            if record.since and record.state.gone:
                if (seconds := self.context.now() - record.since) >= 1:
                    parts.append((f"  for {clock_text(seconds)}", "bold $error"))
                if retry := retry_text(record.retry, self.context.now()):
                    parts.append((f", {retry}", "bold $error"))
            if record.since:
                parts.append((f"  since {time_text(record.since)}", MUTED))
            if record.backend:
                parts.append((f"  via {one_line(record.backend, 30)}", MUTED))
        return parts

    def stepped_lines(self, width: int) -> Lines:
        record = self._record()
        if record is None:
            return [[("unknown node", MUTED)]]
        context = self.context
        steps = partial(self.steps_of, width=width)
        return node_lines(context.model, record, context.preflight(), width, context.glyphs, steps)

    def action_probe(self) -> None:
        session_actions.probe_again(self.context, [self.node])

    def action_other(self, step: int) -> None:
        names = list(self.context.model.nodes)
        if self.node in names:
            self.node = names[(names.index(self.node) + step) % len(names)]
            self.selected = None
            self.draw()
            self.action_scroll_edge(False)


def node_lines(
    model: Model, record: NodeRecord, found: Preflight, width: int, glyphs: Glyphs, steps_of: Callable[[Finding], Lines]
) -> Lines:
    """Return the text of a node; ``found`` is the preflight of all nodes, ``steps_of`` draws next steps."""
    lines: Lines = []
    lines += problem_lines(record, width)
    untested = sum(record.name in map(node_of, pair) for pair in model.untested)
    counts = [count(len(model.table.of_node(record.name)), "endpoint")]
    counts += [f"{untested} of its pairs could not be tested"] if untested else []
    lines.append([(f"  {', '.join(counts)}", MUTED)])
    lines += row_lines(model, record, width, glyphs)
    lines += odd_lines(found, record, width, glyphs, steps_of)
    inventory, probes = record.inventory, record.probe_results
    if inventory is None:
        lines += [[], [("  inventory not known", MUTED)]]
    else:
        lines += gpu_lines(inventory, probes.get("gpus")) + process_lines(inventory)
    lines += gpu_state_lines(probes.get("gpus"), probes.get("gpuload"))
    if inventory is not None:
        lines += section("system") + pairs(system_lines(inventory))
    lines += nvlink_lines(probes.get("nvlink"), record.first_probe_results.get("nvlink"))
    lines += ib_lines(probes.get("ibstat"), inventory) + port_lines(record)
    if inventory is not None:
        lines += nic_lines(inventory) + library_lines(inventory)
    lines += declared_lines(probes) + kernel_lines(probes.get("kernel"))
    lines += user_probe_lines(record) + _raw_lines(record)
    return lines


def _raw_lines(record: NodeRecord) -> Lines:
    lines: Lines = []
    for probe, result in record.probe_results.items():
        raw = result.get("raw")
        texts = raw.items() if isinstance(raw, dict) else [("", raw)]
        for name, text in texts:
            if not isinstance(text, str) or not text.strip():
                continue
            lines += section(f"raw text, {one_line(f'{probe} {name}', 60)}")
            lines += [[(f"  {line}", "")] for line in clean(text, _RAW_LIMIT).expandtabs().splitlines()]
        error = result.get("error")
        if error:
            lines += [[], [(f"  {one_line(str(probe), 30)}: ", MUTED), (text_of(error, 600), "$error")]]
    return lines


#: Width of the label of a row.
_LABEL = 10


def row_lines(model: Model, record: NodeRecord, width: int, glyphs: Glyphs) -> Lines:
    mine = [end for end in model.table.of_node(record.name) if end.kind != "none"]
    others = [end for end in model.endpoints if end.kind != "none"]
    if not mine or len(others) < 2:
        return []
    nodes = list(dict.fromkeys(end.node for end in others))
    label = _LABEL + 2
    by_cell = len(others) + len(nodes) - 1 <= width - label
    room = len(others) + len(nodes) - 1 if by_cell else len(nodes)
    unit = "one glyph per cell" if by_cell else "one glyph per node, its worst cell"
    halves: list[list[list[Part]]] = []
    for caption, out in (("sends to", True), ("receives", False)):
        head = f"  {caption:<{_LABEL}}" + (_heads(others) if by_cell else "")
        halves.append([[(head, MUTED)], *(_row(model, end, others, nodes, by_cell, out, glyphs) for end in mine)])
    rows = halves[0] + halves[1]
    if room <= (width - 2 * label - 4) // 2:
        # Side by side.
        rows = [
            [*left, (" " * (label + room + 4 - sum(len(text) for text, _ in left)), ""), *right]
            for left, right in zip(*halves, strict=True)
        ]
    return section("rows and columns", f"{unit}, in the order of the grid") + rows


def _heads(others: list[Endpoint]) -> str:
    """Return the node names over their cells, cut on the left because they differ at the end."""
    counts = Counter(end.node for end in others)
    domain = common_domain(counts)
    return " ".join(f"{fit_text(node.removesuffix(domain))[-count:]:<{count}}" for node, count in counts.items())


def _row(
    model: Model, end: Endpoint, others: list[Endpoint], nodes: list[str], by_cell: bool, out: bool, glyphs: Glyphs
) -> list[Part]:
    name = {"gpu": f"GPU {end.index}", "cpu": f"rank {end.index}"}.get(end.kind, str(end.index))
    head: Part = (f"  {name:<{_LABEL}}", "")
    if by_cell:
        cells = [(end.number, o.number) if out else (o.number, end.number) for o in others]
        return [head, *cells_strip(model, Layer.P2P, cells, glyphs)]
    parts: list[Part] = []
    for node in nodes:
        numbers = [o.number for o in model.table.of_node(node) if o.kind != "none" and o.number != end.number]
        cells = [(end.number, number) if out else (number, end.number) for number in numbers]
        verdict = worst([model.cell(Layer.P2P, *cell).verdict for cell in cells])
        parts.append((glyphs.of_style[style_of(verdict, None)], verdict_style(verdict)))
    return [head, *merged(parts)]


_LIMIT = 200
#: Maximum number of listed P_Keys.
_MAX_KEYS = 4
#: Maximum number of kinds of kernel reports; the worst come first.
_MAX_REPORTS = 40
_VERDICTS = {"bad": "bold $error", "warn": "$warning"}
#: Reasons for lower clocks that do not indicate a fault.
_USUAL = ("idle", "applications_clocks_setting", "sync_boost", "display_clock_setting")


def text_of(value: Any, limit: int = _LIMIT) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return one_line(str(value), limit)


def _texts(record: Any, *names: str) -> list[str]:
    return [text_of(field(record, name)) for name in names]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _measured(value: Any, unit: str = "", form: str = ".0f", scale: int = 1) -> str:
    """Return a number in a unit that is ``scale`` times as large; ``-`` if it is not a number."""
    return f"{value / scale:{form}}{unit}" if _is_number(value) else "-"


def _gib(value: Any) -> str:
    return _measured(value, " GiB", ".1f", 2**30)


def _gigabits(value: Any) -> str:
    return _measured(value, " Gb/s", "g", 1000)


def _below(now: Any, most: Any) -> bool:
    return isinstance(now, int) and isinstance(most, int) and now < most


def _marked(text: str, style: str, mark: object) -> Cell:
    return (text, style) if mark else text


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


def _limit_text(value: Any, *, size: bool = False) -> str:
    soft = field(value, "soft")
    if soft is None:
        return "-"
    if size and isinstance(soft, int) and soft >= 0:
        return bytes_text(soft)
    return "unlimited" if soft == -1 else text_of(soft)


def system_lines(inventory: Entry) -> list[tuple[str, str]]:
    host, system, kernel, cpus, driver, cuda = _texts(inventory, "host", "os", "kernel", "cpus", "driver", "cuda")
    rows = [
        ("host", host),
        ("system", f"{system}, kernel {kernel}"),
        ("CPUs", f"{cpus}, memory {_gib(inventory.get('memory'))}"),
        ("driver", f"{driver}, CUDA {cuda}"),
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


def gpu_lines(inventory: Entry, gpus_probe: Entry | None = None) -> Lines:
    states = {str(one.get("bus")).lower(): one for one in reversed(dicts(field(gpus_probe, "gpus"))) if one.get("bus")}
    rows: list[Sequence[Cell]] = []
    for gpu in dicts(inventory.get("gpus")):
        gen, best, width, widest = (field(gpu, "pcie", name) for name in ("gen", "gen_max", "width", "width_max"))
        link = f"gen{text_of(gen)} x{text_of(width)}" if gen is not None or width is not None else "-"
        if narrow := _below(width, widest):
            link += f" of gen{text_of(best)} x{widest}"
        state = states.get(str(gpu.get("bus") or "").lower(), {})
        hot, limit = state.get("temperature"), state.get("temperature_slowdown")
        too_hot = isinstance(hot, (int, float)) and isinstance(limit, (int, float)) and hot >= limit - 5
        rows.append(
            [
                text_of(gpu.get("index")),
                text_of(gpu.get("name"), 40).removeprefix("NVIDIA "),
                text_of(gpu.get("bus")),
                _measured(state.get("utilization"), " %"),
                _marked(_measured(hot, " C"), "bold $warning", too_hot),
                f"{_gib(state.get('memory_used', gpu.get('memory_used')))} of {_gib(gpu.get('memory'))}",
                str(len(dicts(gpu.get("processes"))) or "-"),
                _marked(link, "$warning", narrow),
                f"{text_of(gpu.get('nic'))} {text_of(gpu.get('nic_path'))}".replace("- -", "-"),
                text_of(gpu.get("numa")),
                "MIG" if gpu.get("mig") else "",
                _marked(text_of(gpu.get("error")), "$error", gpu.get("error")),
                text_of(gpu.get("uuid")),
            ]
        )
    if not rows:
        found = inventory.get("pci_gpus")
        if isinstance(found, list) and found:
            text = f"  {len(found)} NVIDIA GPUs on PCI, but none visible to the driver"
            return [*section("GPUs"), [(text, "$warning")]]
    headings = ["GPU", "name", "PCI", "utilization", "temperature", "memory", "processes", "PCIe", "nearest NIC"]
    return table_section("GPUs", [*headings, "NUMA", "", "problem", "UUID"], rows)


def process_lines(inventory: Entry) -> Lines:
    rows = [
        [
            (text, "$warning")
            for text in (*_texts(gpu, "index"), *_texts(one, "pid", "user", "name"), _gib(one.get("memory")))
        ]
        for gpu in dicts(inventory.get("gpus"))
        for one in dicts(gpu.get("processes"))
    ]
    return table_section("processes on its GPUs", ["GPU", "process", "user", "name", "memory"], rows)


def gpu_state_lines(gpus_probe: Entry | None, load: Entry | None) -> Lines:
    busy = {text_of(gpu.get("index")): gpu for gpu in dicts(field(load, "gpus")) if gpu.get("busy") is True}
    rows = [_state_cells(gpu, busy.get(text_of(gpu.get("index")))) for gpu in dicts(field(gpus_probe, "gpus"))]
    headings = ["GPU", "PCIe", "under load", "SM MHz", "throttled by", "power W", "C", "ECC", "rows", "fabric"]
    lines = table_section("GPU state", [*headings, "problem"], rows, f"from {text_of(field(gpus_probe, 'source'))}")
    manager = field(gpus_probe, "fabric_manager")
    if field(manager, "installed") is True:
        runs = {True: "running", False: "not running", None: "state not known"}[yes(field(manager, "active"))]
        lines.append([("  Fabric Manager ", MUTED), (f"{text_of(field(manager, 'version'))}, {runs}", "")])
    for name in ("problems", "disagreements"):
        found = field(gpus_probe, name)
        lines += [[("  ", ""), (text_of(text, 300), "$warning")] for text in (found if isinstance(found, list) else [])]
    return lines


def _state_cells(gpu: Entry, busy: Entry | None) -> list[Cell]:
    problem = text_of(gpu["lost"]) if gpu.get("lost") else _first(gpu.get("errors"))
    fabric = field(gpu, "fabric", "state")
    return [
        text_of(gpu.get("index")),
        _pcie(gpu, idle=True),
        ("-", MUTED) if busy is None else _pcie(busy, idle=False),
        _of(field(gpu, "clocks", "sm"), field(gpu, "clocks", "sm_max")),
        _reasons(gpu, busy),
        _of(gpu.get("power"), gpu.get("power_limit")),
        text_of(gpu.get("temperature")),
        _ecc(gpu),
        _rows(gpu),
        _marked(text_of(fabric), "bold $error", fabric not in (None, "completed", "not supported")),
        _marked(problem, "bold $error", problem != "-"),
    ]


def _first(errors: Any) -> str:
    if not isinstance(errors, dict) or not errors:
        return "-"
    name, text = next(iter(errors.items()))
    more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    return one_line(f"{name}: {text}{more}", 80)


def _of(now: Any, most: Any) -> str:
    return "-" if _measured(now) == _measured(most) == "-" else f"{_measured(now)} of {_measured(most)}"


def _pcie(gpu: Entry, *, idle: bool) -> Part:
    """Return a PCIe link. On an idle GPU only the width is judged: power saving lowers the generation."""
    names = ("generation", "generation_max", "width", "width_max")
    now, best, width, widest = (field(gpu, "pcie", name) for name in names)
    if now is None and width is None:
        return "-", MUTED
    text = f"gen{text_of(now)} x{text_of(width)}"
    if _below(width, widest) or (not idle and _below(now, best)):
        return f"{text} of gen{text_of(best)} x{text_of(widest)}", "bold $warning"
    return text, ""


def _reasons(gpu: Entry, busy: Entry | None) -> Part:
    found: list[str] = []
    for one in (gpu, busy or {}):
        reasons = one.get("reasons")
        names = [reason for reason in reasons if isinstance(reason, str)] if isinstance(reasons, list) else []
        found += [name for name in names if name not in _USUAL and name not in found]
    if not found:
        return "-", MUTED
    plain = one_line(", ".join(name.replace("_", " ") for name in found), 80)
    return plain, "" if found == ["sw_power_cap"] else "bold $warning"


def _ecc(gpu: Entry) -> Cell:
    bad = field(gpu, "ecc_errors", "uncorrected")
    if isinstance(bad, int) and not isinstance(bad, bool) and bad > 0:
        return f"{bad} uncorrected", "bold $error"
    return {True: "on", False: "off", None: "-"}[yes(field(gpu, "ecc", "on"))]


def _rows(gpu: Entry) -> Cell:
    rows = gpu.get("rows")
    if field(rows, "failure") is True:
        return "failed", "bold $error"
    if field(rows, "pending") is True or gpu.get("retired_pending") is True:
        return "pending", "bold $warning"
    return text_of(field(rows, "uncorrectable"))


def nvlink_lines(nvlink: Entry | None, first: Entry | None) -> Lines:
    before = {_place_of(gpu, link): link for gpu in dicts(field(first, "gpus")) for link in dicts(gpu.get("links"))}
    rows: list[Sequence[Cell]] = []
    odd: Lines = []
    for gpu in dicts(field(nvlink, "gpus")):
        links = dicts(gpu.get("links"))
        active = sum(1 for link in links if link.get("state") == "active")
        speeds = sorted({link["speed"] for link in links if isinstance(link.get("speed"), (int, float))})
        totals: dict[str, int] = {}
        for link in links:
            for name, value in error_counters(link).items():
                totals[name] = totals.get(name, 0) + value
            odd += _odd_link(gpu, link, before.get(_place_of(gpu, link)))
        errors = ", ".join(f"{name} {value}" for name, value in totals.items()) or "-"
        counted = _marked(
            f"{active} of {len(links)}", "bold $warning", active < len(links) and not is_card(gpu.get("name"))
        )
        rates = ", ".join(f"{speed:g}" for speed in speeds) or "-"
        shown_errors = _marked(errors, "$warning", any(totals.values()))
        rows.append([text_of(gpu.get("index")), counted, rates, shown_errors, text_of(gpu.get("message"))])
    headings = ["GPU", "links active", "GB/s per link", "errors of all links", "message"]
    return table_section("NVLink", headings, rows, f"from {text_of(field(nvlink, 'source'))}") + odd


def _place_of(gpu: Entry, link: Entry) -> tuple[str, str]:
    return text_of(gpu.get("uuid") or gpu.get("index")), text_of(link.get("link"))


def _odd_link(gpu: Entry, link: Entry, old: Entry | None) -> Lines:
    now, was = error_counters(link), error_counters(old or {})
    counted = {name: value for name, value in now.items() if value}
    by_design = link.get("state") == "inactive" and is_card(gpu.get("name"))
    if (link.get("state") == "active" or by_design) and not counted:
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


def ib_lines(ibstat: Entry | None, inventory: Entry | None) -> Lines:
    if cas := dicts(field(ibstat, "cas")):
        source = text_of(field(ibstat, "source"))
        found = [
            (ca, port, port.get("physical_state"), port.get("guid")) for ca in cas for port in dicts(ca.get("ports"))
        ]
    else:
        source = "inventory"
        found = [(port, port, port.get("phys_state"), None) for port in dicts(field(inventory, "ib"))]
    rows: list[Sequence[Cell]] = []
    for device, port, raw, guid in found:
        number, state, link_layer, lid, sm_lid = _texts(port, "port", "state", "link_layer", "lid", "sm_lid")
        physical, rate = text_of(raw), port.get("rate")
        rows.append(
            [
                text_of(device.get("ca")),
                number,
                _marked(state, "bold $warning", state != "Active"),
                _marked(physical, "bold $warning", physical not in ("LinkUp", "-")),
                f"{rate:g}" if isinstance(rate, (int, float)) else text_of(rate),
                *(link_layer, lid, sm_lid, text_of(device.get("firmware")), text_of(guid)),
            ]
        )
    headings = ["device", "port", "state", "physical", "Gb/s", "link layer", "LID", "SM LID", "firmware", "GUID"]
    return table_section("InfiniBand and RoCE ports", headings, rows, f"from {source}")


def port_lines(record: NodeRecord) -> Lines:
    rdma, fabric = record.probe_results.get("rdma") or {}, record.probe_results.get("ibfabric") or {}
    beyond = {_place(port): port for port in dicts(fabric.get("ports"))}
    known = {_place(port): port for port in dicts(rdma.get("ports"))}
    rows: list[Sequence[Cell]] = []
    for key in dict.fromkeys([*known, *beyond]):
        port, far = known.get(key, {}), beyond.get(key, {})
        errors = {**_counts(port.get("errors")), **_counts(far.get("errors"))}
        theirs = _counts(far.get("peer_errors"))
        rows.append(
            [
                key,
                _mtu(port, far),
                text_of(port.get("netdev"), 20),
                _gid(port),
                _keys(port.get("pkeys")),
                _leaf(far.get("leaf")),
                _marked(_link(far.get("link")), "bold $warning", field(far, "link", "below")),
                _marked(_counts_text(errors, port.get("saturated")), "$warning", errors),
                _marked(_counts_text(theirs, far.get("peer_saturated")), "$warning", theirs),
            ]
        )
    if not rows:
        return []
    headings = ["port", "MTU", "interface", "RoCE v2 GID", "P_Keys", "leaf", "link", "errors", "errors at the leaf"]
    lines = table_section("RDMA ports in detail", headings, rows)
    advice = [why for name in ("gid_why", "hca_why") if (why := field(rdma, "nccl", name))]
    lines += [[(f"  {text_of(why, 300)}", MUTED)] for why in advice]
    if ages := sorted({age for port in known.values() if isinstance(age := port.get("refresh"), int)}):
        period = "adapter counters (hw_counters) are updated every"
        lines.append([(f"  {period} {', '.join(map(str, ages))} ms", MUTED)])
    if fabric.get("error"):
        lines.append([(f"  the fabric cannot be queried from this node: {text_of(fabric['error'], 300)}", MUTED)])
    return lines + _interface_lines(rdma)


def _place(port: Entry) -> str:
    return f"{text_of(port.get('ca'), 40)}/{text_of(port.get('port'), 6)}"


def _counts(value: Any) -> dict[str, int]:
    found = value if isinstance(value, dict) else {}
    return {one_line(str(name), 40): count for name, count in found.items() if isinstance(count, int) and count}


def _counts_text(counts: dict[str, int], saturated: Any) -> str:
    full = saturated if isinstance(saturated, list) else []
    return ", ".join(f"{name} {count}{' or more' if name in full else ''}" for name, count in counts.items()) or "-"


def _mtu(port: Entry, far: Entry) -> str:
    now, most = port.get("active_mtu") or far.get("mtu"), port.get("max_mtu")
    if now is None:
        return "-"
    return f"{text_of(now)} B" if most in (None, now) else f"{text_of(now)} of {text_of(most)} B"


def _gid(port: Entry) -> str:
    index = port.get("gid_index")
    return "-" if index is None else f"index {text_of(index, 6)}, {text_of(port.get('ipv4'), 20)}"


def _keys(value: Any) -> str:
    keys = [text_of(key, 8) for key in value] if isinstance(value, list) else []
    more = f" and {len(keys) - _MAX_KEYS} more" if len(keys) > _MAX_KEYS else ""
    return (", ".join(keys[:_MAX_KEYS]) or "-") + more


def _leaf(value: Any) -> str:
    if not isinstance(value, dict):
        return "-"
    return f"{text_of(value.get('name') or value.get('guid'), 40)} port {text_of(value.get('port'), 6)}"


def _link(value: Any) -> str:
    if not isinstance(value, dict):
        return "-"
    rate, could = value.get("rate"), value.get("could_rate")
    text = f"{text_of(value.get('lanes'), 4)}X, {rate:g} Gb/s" if isinstance(rate, (int, float)) else "-"
    return f"{text} of {could:g}" if value.get("below") and isinstance(could, (int, float)) else text


def _interface_lines(rdma: Entry) -> Lines:
    rows: list[Sequence[Cell]] = []
    for nic in dicts(rdma.get("nics")):
        lost, pause = _counts(nic.get("discards")), nic.get("pause")
        head = [text_of(nic.get("interface"), 20), text_of(nic.get("link"), 10)]
        head += [_gigabits(nic.get("speed")), _gigabits(nic.get("fastest"))]
        paused = f"rx {text_of(field(pause, 'rx'), 5)}, tx {text_of(field(pause, 'tx'), 5)}"
        discarded = _marked(_counts_text(lost, None), "$warning", lost)
        rows.append([*head, paused, discarded, text_of(nic.get("driver"), 20), text_of(nic.get("firmware"), 40)])
    headings = ["interface", "link", "speed", "maximum", "pause", "discarded, damaged, paused", "driver", "firmware"]
    return table_section("interfaces, from ethtool", headings, rows)


def nic_lines(inventory: Entry) -> Lines:
    rows = []
    for nic in dicts(inventory.get("nics")):
        if nic.get("kind") != "loopback":
            addresses = ", ".join(text_of(entry.get("address"), 60) for entry in dicts(nic.get("addresses")))
            kind = text_of(nic.get("link_kind") or nic.get("kind"))
            name, state, mtu, *where = _texts(nic, "name", "state", "mtu", "rdma", "numa", "bus")
            rows.append([name, state, _gigabits(nic.get("speed_mbps")), mtu, kind, *where, addresses or "-"])
    headings = ["interface", "state", "speed", "MTU", "kind", "RDMA", "NUMA", "PCI", "addresses"]
    return table_section("network interfaces", headings, rows)


def library_lines(inventory: Entry) -> Lines:
    names = ("path", "version", "torch", "torch_cuda", "nccl_version")
    rows = [[*_texts(one, *names), text_of(one.get("error"), 80)] for one in dicts(inventory.get("pythons"))]
    lines = table_section("Pythons", ["Python", "version", "torch", "torch CUDA", "torch NCCL", "problem"], rows)
    rows = [_texts(one, "path", "version") for one in dicts(inventory.get("nccl"))]
    return lines + table_section("system NCCL libraries", ["path", "version"], rows)


def kernel_lines(kernel: Entry | None) -> Lines:
    if not kernel or kernel.keys() == {"error"}:
        return []
    if kernel.get("readable") != "yes":
        return [*section("kernel"), [(f"  log readable: {text_of(kernel.get('readable'))}", MUTED)]]
    rows: list[Sequence[Cell]] = []
    for kind in dicts(kernel.get("counts"))[:_MAX_REPORTS]:
        code, verdict = kind.get("code"), text_of(kind.get("verdict"), 8)
        if kind.get("kind") == "xid":
            verdict = str(xids.severity(kind))
        report = f"{text_of(kind.get('kind'), 30)}{'' if code is None else f' {text_of(code, 30)}'}"
        device, times = text_of(kind.get("interface") or kind.get("bus")), text_of(kind.get("count"))
        facts = [report.replace("_", " "), device, times, _ago(kind.get("age")), text_of(kind.get("text"), 160)]
        rows.append([(verdict, _VERDICTS.get(verdict, "")), *facts])
    source = f"from {text_of(kernel.get('source'))}"
    if not rows:
        return [*section("kernel", source), [("  no GPU, PCIe or link events since boot", MUTED)]]
    return table_section("kernel", ["", "report", "device", "count", "last", "text"], rows, source)


def _ago(seconds: Any) -> str:
    if not _is_number(seconds):
        return "-"
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return f"{seconds:.0f} s ago"


def user_probe_lines(record: NodeRecord) -> Lines:
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
            mark, style = f"  {UNICODE.of_severity(verdict)} " if verdict != "note" else "  ", STYLES.get(verdict, "")
            lines.append([(mark, style), (one_line(str(one.get("text")), 300), style)])
    return lines

"""Tables of the probes gpus, gpuload and kernel. Their values come from the node and may have any shape."""

from __future__ import annotations

from typing import Any

from fabtui.model.facts.node_view import dicts, field, yes
from fabtui.presentation.wording import MUTED
from fabtui.presentation.wrapping import Lines
from fabtui.sanitize import one_line
from fabtui.screen.views.detail_base import section, table
from fabtui.screen.views.node.probe_tables import text_of

#: Maximum number of kinds of kernel reports; the worst come first.
_MAX_REPORTS = 40
_VERDICTS = {"bad": "bold $error", "warn": "$warning"}
#: Reasons for lower clocks that do not indicate a fault.
_USUAL = ("idle", "applications_clocks_setting", "sync_boost", "display_clock_setting")


def gpu_state_lines(gpus_probe: dict[str, Any] | None, load: dict[str, Any] | None) -> Lines:
    """Return the state of each GPU, and its PCIe link under load."""
    gpus = dicts((gpus_probe or {}).get("gpus"))
    busy = {text_of(gpu.get("index")): gpu for gpu in dicts((load or {}).get("gpus")) if gpu.get("busy") is True}
    rows: list[list[str]] = []
    styles: dict[tuple[int, int], str] = {}
    for at, gpu in enumerate(gpus):
        cells = _state_cells(gpu, busy.get(text_of(gpu.get("index"))))
        rows.append([text for text, _ in cells])
        styles |= {(at, column): style for column, (_, style) in enumerate(cells) if style}
    lines = section("GPU state", f"from {text_of((gpus_probe or {}).get('source'))}") + table(_HEADINGS, rows, styles)
    if not gpus:
        lines = []
    manager = (gpus_probe or {}).get("fabric_manager")
    if field(manager, "installed") is True:
        runs = {True: "running", False: "not running", None: "state not known"}[yes(field(manager, "active"))]
        lines.append([("  Fabric Manager ", MUTED), (f"{text_of(field(manager, 'version'))}, {runs}", "")])
    for name in ("problems", "disagreements"):
        found = (gpus_probe or {}).get(name)
        lines += [[("  ", ""), (text_of(text, 300), "$warning")] for text in (found if isinstance(found, list) else [])]
    return lines


_HEADINGS = ["GPU", "PCIe", "under load", "SM MHz", "throttled by", "power W", "C", "ECC", "rows", "fabric", "problem"]

Cell = tuple[str, str]


def _state_cells(gpu: dict[str, Any], busy: dict[str, Any] | None) -> list[Cell]:
    """Return the text and style of each cell of a GPU's row."""
    errors = gpu.get("errors")
    problem = text_of(gpu.get("lost")) if gpu.get("lost") else _first(errors)
    fabric = field(gpu, "fabric", "state")
    return [
        (text_of(gpu.get("index")), ""),
        _pcie(gpu, idle=True),
        ("-", MUTED) if busy is None else _pcie(busy, idle=False),
        (_of(field(gpu, "clocks", "sm"), field(gpu, "clocks", "sm_max")), ""),
        _reasons(gpu, busy),
        (_of(gpu.get("power"), gpu.get("power_limit")), ""),
        (text_of(gpu.get("temperature")), ""),
        _ecc(gpu),
        _rows(gpu),
        (text_of(fabric), "" if fabric in (None, "completed", "not supported") else "bold $error"),
        (problem, "bold $error" if problem != "-" else ""),
    ]


def _first(errors: Any) -> str:
    if not isinstance(errors, dict) or not errors:
        return "-"
    name, text = next(iter(errors.items()))
    more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
    return one_line(f"{name}: {text}{more}", 80)


def _round(value: Any) -> str:
    return "-" if isinstance(value, bool) or not isinstance(value, (int, float)) else f"{value:.0f}"


def _of(now: Any, most: Any) -> str:
    return "-" if _round(now) == _round(most) == "-" else f"{_round(now)} of {_round(most)}"


def _pcie(gpu: dict[str, Any], *, idle: bool) -> Cell:
    """Return a PCIe link. On an idle GPU only the width is judged: power saving lowers the generation."""
    now, best, width, widest = (
        field(gpu, "pcie", name) for name in ("generation", "generation_max", "width", "width_max")
    )
    if now is None and width is None:
        return "-", MUTED
    text = f"gen{text_of(now)} x{text_of(width)}"
    less = isinstance(width, int) and isinstance(widest, int) and width < widest
    slower = not idle and isinstance(now, int) and isinstance(best, int) and now < best
    if less or slower:
        return f"{text} of gen{text_of(best)} x{text_of(widest)}", "bold $warning"
    return text, ""


def _reasons(gpu: dict[str, Any], busy: dict[str, Any] | None) -> Cell:
    found: list[str] = []
    for one in (gpu, busy or {}):
        reasons = one.get("reasons")
        names = [reason for reason in reasons if isinstance(reason, str)] if isinstance(reasons, list) else []
        found += [name for name in names if name not in _USUAL and name not in found]
    if not found:
        return "-", MUTED
    plain = one_line(", ".join(name.replace("_", " ") for name in found), 80)
    return plain, "" if found == ["sw_power_cap"] else "bold $warning"


def _ecc(gpu: dict[str, Any]) -> Cell:
    """Return the state of ECC, and the uncorrected errors."""
    on = {True: "on", False: "off", None: "-"}[yes(field(gpu, "ecc", "on"))]
    bad = field(gpu, "ecc_errors", "uncorrected")
    if isinstance(bad, int) and not isinstance(bad, bool) and bad > 0:
        return f"{bad} uncorrected", "bold $error"
    return on, ""


def _rows(gpu: dict[str, Any]) -> Cell:
    rows = gpu.get("rows")
    if field(rows, "failure") is True:
        return "failed", "bold $error"
    if field(rows, "pending") is True or gpu.get("retired_pending") is True:
        return "pending", "bold $warning"
    return text_of(field(rows, "uncorrectable")), ""


def kernel_lines(kernel: dict[str, Any] | None) -> Lines:
    """Return the kernel reports since boot, each kind once."""
    if not kernel or kernel.keys() == {"error"}:
        return []
    source = text_of(kernel.get("source"))
    if kernel.get("readable") != "yes":
        return [*section("kernel"), [(f"  log readable: {text_of(kernel.get('readable'))}", MUTED)]]
    rows: list[list[str]] = []
    styles: dict[tuple[int, int], str] = {}
    for at, count in enumerate(dicts(kernel.get("counts"))[:_MAX_REPORTS]):
        code, verdict = count.get("code"), text_of(count.get("verdict"), 8)
        if verdict in _VERDICTS:
            styles[at, 0] = _VERDICTS[verdict]
        rows.append(
            [
                verdict,
                f"{text_of(count.get('kind'), 30)}{'' if code is None else f' {text_of(code, 30)}'}".replace("_", " "),
                text_of(count.get("interface") or count.get("bus")),
                text_of(count.get("count")),
                _ago(count.get("age")),
                text_of(count.get("text"), 160),
            ]
        )
    if not rows:
        return [*section("kernel", f"from {source}"), [("  no GPU, PCIe or link events since boot", MUTED)]]
    return section("kernel", f"from {source}") + table(["", "report", "device", "count", "last", "text"], rows, styles)


def _ago(seconds: Any) -> str:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return "-"
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return f"{seconds:.0f} s ago"

"""What the probes gpus, gpuload and kernel found, as tables. Nothing of the shape of their values is relied on."""

from __future__ import annotations

from typing import Any

from fabtui.model.facts.node_view import dicts, field, yes
from fabtui.presentation.wording import MUTED
from fabtui.sanitize import one_line
from fabtui.screen.views.detail_base import Lines, section, table
from fabtui.screen.views.node.probe_tables import text_of

#: So many kinds of reports are shown; the worst come first.
_MOST_REPORTS = 40
_VERDICTS = {"bad": "bold $error", "warn": "$warning"}
#: Reasons for slower clocks that say nothing of a fault.
_USUAL = ("idle", "applications_clocks_setting", "sync_boost", "display_clock_setting")


def gpu_state_lines(look: dict[str, Any] | None, load: dict[str, Any] | None) -> Lines:
    """Return the state of each GPU, and its PCIe link as it was when the GPU had work."""
    gpus = dicts((look or {}).get("gpus"))
    busy = {text_of(gpu.get("index")): gpu for gpu in dicts((load or {}).get("gpus")) if gpu.get("busy") is True}
    rows: list[list[str]] = []
    styles: dict[tuple[int, int], str] = {}
    for at, gpu in enumerate(gpus):
        cells = _state_cells(gpu, busy.get(text_of(gpu.get("index"))))
        rows.append([text for text, _ in cells])
        styles |= {(at, column): style for column, (_, style) in enumerate(cells) if style}
    lines = section("GPU state", f"from {text_of((look or {}).get('source'))}") + table(_HEADINGS, rows, styles)
    if not gpus:
        lines = []
    manager = (look or {}).get("fabric_manager")
    if field(manager, "installed") is True:
        runs = {True: "runs", False: "does not run", None: "runs or not, not known"}[yes(field(manager, "active"))]
        lines.append([("  Fabric Manager ", MUTED), (f"{text_of(field(manager, 'version'))}, {runs}", "")])
    for name in ("problems", "disagreements"):
        found = (look or {}).get(name)
        lines += [[("  ", ""), (text_of(text, 300), "$warning")] for text in (found if isinstance(found, list) else [])]
    return lines


_HEADINGS = ["GPU", "PCIe", "under load", "SM MHz", "held down by", "power W", "C", "ECC", "rows", "fabric", "problem"]

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
    """Return a PCIe link; while a GPU is idle, only its width is judged."""
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
    """Return whether ECC is on, and what it could not correct."""
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


def kernel_lines(look: dict[str, Any] | None) -> Lines:
    """Return what the kernel reported since the node was started, each kind of report once."""
    if not look or look.keys() == {"error"}:
        return []
    source = text_of(look.get("source"))
    if look.get("readable") != "yes":
        return [*section("kernel"), [(f"  its log: {text_of(look.get('readable'))}", MUTED)]]
    rows: list[list[str]] = []
    styles: dict[tuple[int, int], str] = {}
    for at, count in enumerate(dicts(look.get("counts"))[:_MOST_REPORTS]):
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
    return section("kernel", f"from {source}") + table(["", "report", "of", "times", "last", "text"], rows, styles)


def _ago(seconds: Any) -> str:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        return "-"
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return f"{seconds:.0f} s ago"

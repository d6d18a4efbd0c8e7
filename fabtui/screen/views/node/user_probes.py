"""Results of the user's probes on a node."""

from __future__ import annotations

from fabtui.model.facts.node_view import dicts
from fabtui.model.session_model import NodeRecord
from fabtui.presentation.preflight_lines import UNICODE
from fabtui.presentation.wording import MUTED
from fabtui.presentation.wrapping import Lines
from fabtui.sanitize import one_line
from fabtui.screen.views.detail_base import pairs, section
from fabtui.screen.widgets.preflight_text import STYLES


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

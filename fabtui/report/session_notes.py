"""Lines about the networks of a session, what carries the bytes between nodes, and the storage check."""

from __future__ import annotations

import ipaddress
import textwrap
from typing import Any

from fabtui.diagnosis.pairs.traffic_path import carrier, carriers, latest_pairs
from fabtui.model.facts.node_view import dicts, number, text
from fabtui.model.layers import Layer
from fabtui.model.session_model import Model
from fabtui.presentation.text_table import aligned
from fabtui.report.tables import MOST_LINES, capped
from fabtui.sanitize import one_line

#: Maximum number of networks that are named.
_MOST = 8
Places = dict[tuple[int, str], dict[str, None]]


def networks(model: Model) -> list[str]:
    """Return lines on the tested networks, one for each rail, and on the interfaces that only SSH uses."""
    tested: Places = {}
    left_out: Places = {}
    for record in model.nodes.values():
        inventory = record.inventory or {}
        data = {str(entry.get("address")): entry for entry in dicts(inventory.get("data_addresses"))}
        for nic in dicts(inventory.get("nics")):
            name, entries = one_line(str(nic.get("name")), 40), dicts(nic.get("addresses"))
            for entry in entries:
                rail = data.get(str(entry.get("address")), {}).get("rail", -1)
                if str(entry.get("address")) in data:
                    place = rail if isinstance(rail, int) else -1
                    tested.setdefault((place, _network(entry)), {})[name] = None
                elif nic.get("login") is True and not any(str(one.get("address")) in data for one in entries):
                    left_out.setdefault((-1, _network(entry)), {})[name] = None
    # One network without another to be confused with needs no line.
    if not tested or len(tested) + len(left_out) == 1:
        return []
    lines = ["tested networks: " + _listed(tested)]
    used = {end.rail for end in model.endpoints if end.kind == "cpu" and end.rail is not None}
    idle = sorted({rail for rail, _ in tested if rail >= 0} - used)
    if used and idle and not model.layers.isdisjoint((Layer.P2P, Layer.WORLD)):
        ranks = max(idle) + 1
        lines.append(f"no CPU rank sends over rail {', '.join(map(str, idle))}: --ranks-per-node {ranks}")
    if left_out:
        names = sorted({name for found in left_out.values() for name in found})
        lines.append(
            f"not tested, as SSH uses it: {_listed(left_out)}"
            f" (NCCL_SOCKET_IFNAME={names[0]} in the nodes' login environment has it tested)"
        )
    return lines


def _listed(places: Places) -> str:
    found = [
        f"{f'rail {rail} ' if rail >= 0 else ''}{network} ({', '.join(names)})"
        for (rail, network), names in sorted(places.items())
        if not network.startswith("fe80:")
    ]
    more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
    return ", ".join(found[:_MOST]) + more


def _network(entry: dict[str, Any]) -> str:
    try:
        return str(ipaddress.ip_interface(f"{entry.get('address')}/{entry.get('prefix')}").network)
    except ValueError:
        return "unknown network"


_WIDTH = 110


def carrier_lines(model: Model, every_pair: bool) -> list[str]:
    """Return the sentence, and with ``every_pair`` the pairs as well, those that are alike together."""
    sentence = carriers(model).sentence
    if not sentence or not every_pair:
        return [sentence] if sentence else []
    alike: dict[str, list[str]] = {}
    for m in sorted(latest_pairs(model), key=lambda one: (model.number(one.src) or 0, model.number(one.dst) or 0)):
        if found := carrier(model, m):
            alike.setdefault(one_line(found.text, 300), []).append(f"{m.src} > {m.dst}")
    lines = []
    for shown, pairs in alike.items():
        named = one_line(", ".join(pairs), 1 << 20)
        lines += [f"  {shown}", *textwrap.wrap(named, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 4)]
    return capped([sentence], lines, "lines", MOST_LINES, "--json has all pairs")


def storage_table(model: Model) -> list[str]:
    """Return the table, empty where the probe ``storage`` did not run."""
    rows, files = [], []
    for record in model.nodes.values():
        value = record.probe_results.get("storage")
        if value is None:
            continue
        files.append(text(value.get("path")) or "")
        rates = [number(value.get(name)) for name in ("alone", "together")]
        how = [text(value.get(name)) or "" for name in ("how", "filesystem", "problem", "error")]
        cells = ["-" if rate is None else f"{rate:.0f}" for rate in rates]
        rows.append([record.name, *cells, one_line(", ".join(word for word in how if word), 160)])
    if not rows:
        return []
    where = next((one_line(file, 200) for file in files if file), "")
    head = ["", "alone", "all at once", "read by"]
    lines = [f"storage, MB/s: sequential read of {where}" if where else "storage", *aligned([head, *rows], (0, 3))]
    sums = [total for name in ("together",) if (total := _sum(model, name)) is not None]
    lines += [f"  all nodes at once: {total:.0f} MB/s" for total in sums]
    left = len(lines) - MOST_LINES
    return lines if left <= 0 else [*lines[: MOST_LINES - 1], f"  and {left + 1} more lines; --json has them all"]


def _sum(model: Model, name: str) -> float | None:
    values = [number(record.probe_results.get("storage", {}).get(name)) for record in model.nodes.values()]
    known = [value for value in values if value is not None]
    return sum(known) if known else None

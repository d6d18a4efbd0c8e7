"""The file that nccl-tests write with ``-J``: the same values as their tables."""

from __future__ import annotations

from pathlib import PurePath
from typing import Any

from fabtui.importers.lines import json_value, whole

Row = dict[str, Any]


def from_json(text: str) -> Row | None:
    """Return the object of such a file, or None."""
    if '"results"' not in text or '"nccl_version"' not in text:
        return None
    value = json_value(text)
    return value if isinstance(value, dict) and isinstance(value.get("results"), list) else None


def table_of(value: Row) -> Row:
    """Return its table, in the shape of `fabtui.importers.formats.nccl_tests.parse`."""
    args = value.get("args")
    program = PurePath(str(args[0])).name if isinstance(args, list) and args else ""
    devices = [device for entry in _rows(value.get("devices")) if (device := _device(entry)) is not None]
    config = value.get("config")
    bounds, average = _object(value.get("out_of_bounds")), _object(value.get("average_bus_bandwidth"))
    return {
        "operation": program.partition("_perf")[0].replace("all_to_all", "alltoall") or None,
        "operation_from": "name" if program else None,
        "ranks": max((device["rank"] for device in devices), default=-1) + 1 or None,
        "hosts": list(dict.fromkeys(device["host"] for device in devices)),
        "devices": devices,
        "options": {str(name)[:40]: item for name, item in _object(config).items() if isinstance(item, (int, float))},
        "rows": [row for entry in _rows(value["results"]) if (row := _row(entry)) is not None],
        "out_of_bounds": _whole(bounds.get("count")),
        "average": _number(average.get("bandwidth")),
    }


def version_of(value: Row) -> str | None:
    """Return NCCL's version, of a number such as 22809."""
    code = _whole(value.get("nccl_version"))
    if code is None or code <= 0:
        return None
    # Up to 2.8 the number had two digits less.
    major, rest = (code // 1000, code % 1000) if code < 10_000 else (code // 10_000, code % 10_000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _device(entry: Row) -> Row | None:
    rank, device = _whole(entry.get("rank")), _whole(entry.get("device"))
    if rank is None or device is None or not isinstance(entry.get("hostname"), str):
        return None
    return {
        "rank": rank,
        "host": entry["hostname"][:253],
        "device": device,
        "bus": str(entry.get("device_hex") or "")[:20] or None,
        "name": str(entry.get("device_info") or "").strip()[:200],
        "pid": _whole(entry.get("pid")),
    }


def _row(entry: Row) -> Row | None:
    size, count = _whole(entry.get("size")), _whole(entry.get("count"))
    sides = {place: _side(entry.get(place)) for place in ("out_of_place", "in_place")}
    if size is None or count is None or not any(sides.values()):
        return None
    redop, root = entry.get("redop"), whole(str(entry.get("root", "")).strip())
    return {
        "bytes": size,
        "count": count,
        "type": str(entry.get("type", ""))[:20],
        "redop": str(redop)[:20] if redop else None,
        "root": root,
        **sides,
    }


def _side(value: Any) -> Row | None:
    found = _object(value)
    time = _number(found["cpu_time"] if "cpu_time" in found else found.get("time"))
    busbw = _number(found.get("bus_bw"))
    if time is None or busbw is None:
        return None
    wrong = _number(found.get("nwrong"))
    return {
        "time": time,
        "algbw": _number(found.get("alg_bw")),
        "busbw": busbw,
        "wrong": None if wrong is None else int(wrong),
    }


def _object(value: Any) -> Row:
    return value if isinstance(value, dict) else {}


def _rows(value: Any) -> list[Row]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _whole(value: Any) -> int | None:
    plain = isinstance(value, int) and not isinstance(value, bool)
    return value if plain and 0 <= value < 1 << 62 else None

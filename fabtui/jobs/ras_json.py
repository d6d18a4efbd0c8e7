"""JSON of NCCL RAS, from 2.28.7 on: the answer to ``SET FORMAT json`` and ``VERBOSE STATUS``.

Keys after ``src/ras/client_support.cc`` (``rasDumpCommsToJSON``). A comma after ``nvml_dev`` of a missing rank is left
out by 2.28.7 and 2.28.9. Their JSON is therefore invalid exactly when something is wrong; the comma is put in.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fabtui.jobs.ras_report import Communicator, Process, RasReport
from fabtui.jobs.who_is_behind import Place
from fabtui_node.parsers.base import Notes
from fabtui_node.parsers.lines import json_list, json_number, json_object, plain_lines

#: A value at the end of a line and a name on the next one: no valid JSON has this without a comma.
_NO_COMMA = re.compile(r"([\d\"}\]el])([ \t]*\n[ \t]*\")")
_ERRORS = {1: "unhandled CUDA error", 2: "unhandled system error", 3: "internal error", 4: "invalid argument"}
_ERRORS |= {5: "invalid usage", 6: "remote process exited or there was a network error"}
#: ncclSuccess and ncclInProgress.
_FINE = (0, 7)


def json_of(text: str) -> dict[str, Any]:
    """Return the JSON object in an answer, an empty one if there is none that is complete."""
    plain = "\n".join(plain_lines(text))
    start = plain.find("{")
    if start < 0:
        return {}
    for attempt in (plain, _NO_COMMA.sub(r"\1,\2", plain)):
        try:
            value, _ = json.JSONDecoder(parse_constant=lambda _: None).raw_decode(attempt, start)
        except (ValueError, RecursionError):
            continue
        return value if isinstance(value, dict) else {}
    return {}


def parse_json(text: str, notes: Notes) -> RasReport:
    """Return the report of an answer in JSON; if it is cut off, an empty one and a warning."""
    value = json_of(text)
    if not isinstance(value.get("communicators"), list):
        notes.warn("the JSON of RAS is incomplete: nothing of it can be read")
        return RasReport()
    about = json_object(value, "ras")
    report = RasReport(
        nccl=_text(value.get("nccl_version")),
        cuda_runtime=_whole(value.get("cuda_runtime_version")),
        cuda_driver=_whole(value.get("cuda_driver_version")),
        time=_text(value.get("timestamp")),
        seconds=json_number(about.get("collection_time_sec")),
        timeouts=_whole(about.get("timeouts_count")) or 0,
        complete=True,
    )
    for one in value["communicators"]:
        communicator = _communicator(one) if isinstance(one, dict) else None
        if communicator is None:
            notes.warn("a communicator without a hash is left out")
        else:
            report.communicators[communicator.name] = communicator
    _totals(report)
    return report


def _communicator(value: dict[str, Any]) -> Communicator | None:
    name = _text(value.get("hash"))
    if not name:
        return None
    found = Communicator(name.removeprefix("0x").zfill(16)[:40], _whole(value.get("size")))
    for one in json_list(value.get("ranks")):
        rank = _place(found, one)
        if rank is None:
            continue
        for operation, number in json_object(one, "collective_counts").items():
            if (launched := _whole(number)) is not None:
                found.counts.setdefault(operation[:40], {})[rank] = launched
        status = json_object(one, "status")
        for code in (_whole(status.get("init_state")), _whole(status.get("async_error"))):
            if code is not None and code not in _FINE:
                found.errors[rank] = _ERRORS.get(code, f"NCCL result {code}")
        states = [name for name in ("finalize_called", "destroy_flag", "abort_flag") if status.get(name) is True]
        if states:
            found.states[rank] = {"finalize_called": "FINALIZE"}.get(states[-1], "ABORT")
    for one in json_list(value.get("missing_ranks")):
        rank = _place(found, one)
        if rank is not None:
            status = json_object(one, "status")
            dead = status.get("considered_dead") is True
            found.silent[rank] = "dead" if dead else "unresponsive" if status.get("unresponsive") is True else "missing"
    return found


def _place(communicator: Communicator, value: Any) -> int | None:
    """Note where a rank runs; return the rank, or None if there is none."""
    found = value if isinstance(value, dict) else {}
    rank = _whole(found.get("rank"))
    if rank is None:
        return None
    gpu = _whole(found.get("nvml_dev"))
    gpu = _whole(found.get("cuda_dev")) if gpu is None else gpu
    node = (_text(found.get("host")) or "")[:255]
    communicator.places[rank] = Place(rank, node, _whole(found.get("pid")), "" if gpu is None else str(gpu))
    return rank


def _totals(report: RasReport) -> None:
    """Count nodes, processes and GPUs, which the JSON does not state, and collect the processes that are silent."""
    places = {}
    for communicator in report.communicators.values():
        for rank, place in communicator.places.items():
            if place.pid is None:
                continue
            places[place.process] = place
            if rank in communicator.silent:
                dead = communicator.silent[rank] == "dead"
                process = Process(place.pid, place.node, place.gpu, dead)
                if process not in report.missing:
                    report.missing.append(process)
    if places:
        report.nodes = len({place.node for place in places.values()})
        report.processes = len({(place.node, place.pid) for place in places.values()})
        report.gpus = len({(place.node, place.gpu) for place in places.values()})


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None

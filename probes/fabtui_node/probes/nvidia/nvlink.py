"""NVLink: state, speed and error counters of each link, from ``nvidia-smi nvlink`` and from NVML."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.nvidia.smi_nvlink import (
    ERRORS,
    Gpu,
    new_gpu,
    new_link,
    parse_nvlink_errors,
    parse_nvlink_status,
)
from fabtui_node.parsers.nvidia.values import parse_errors, problem_text
from fabtui_node.probes.judgement import count, objects, part, some
from fabtui_node.probes.nvidia import nvml
from fabtui_node.probes.nvidia.gpu_rules import Judgements
from fabtui_node.probes.nvidia.nvlink_counters import OLDER
from fabtui_node.registry import Judgement, ProbeSpec
from fabtui_node.system import run_command

_RAW_LIMIT = 256 * 1024
#: Minimum number of links of GPUs on boards, where all links are connected.
_BOARD_LINKS = 12


def merge(*sources: List[Gpu]) -> List[Gpu]:
    """Return the GPUs of several sources as one list; where two know a thing, the earlier source is believed."""
    merged: Dict[int, Gpu] = {}
    for source in sources:
        for gpu in source:
            if gpu["index"] is None:
                continue
            target = merged.setdefault(gpu["index"], new_gpu(gpu["index"], None, None))
            for key in ("name", "uuid", "message"):
                target[key] = target[key] if target[key] is not None else gpu.get(key)
            target["all_inactive"] = bool(target.get("all_inactive") or gpu.get("all_inactive"))
            for link in gpu["links"]:
                _merge_link(new_link(target, link["link"]), link)
    for gpu in merged.values():
        gpu["links"].sort(key=lambda link: link["link"])
        if gpu["all_inactive"]:
            for link in gpu["links"]:
                link["state"] = "inactive" if link["state"] == "unknown" else link["state"]
    return [merged[index] for index in sorted(merged)]


def _merge_link(target: Dict[str, Any], link: Dict[str, Any]) -> None:
    if target["state"] == "unknown":
        target["state"] = link["state"]
    if target["speed"] is None:
        target["speed"] = link["speed"]
    for kind in ("counters", "other", "fec", "rates"):
        for name, value in link.get(kind, {}).items():
            known = target.setdefault(kind, {})
            if known.get(name) is None:
                known[name] = value


def visible(found: List[Gpu], setting: Optional[str]) -> List[Gpu]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves: ``index`` counts those, ``nvml_index`` all of them."""
    highest = max([gpu["index"] for gpu in found], default=-1)
    by_index = {gpu["index"]: gpu for gpu in found}
    uuids = [by_index[index]["uuid"] if index in by_index else None for index in range(highest + 1)]
    kept = []
    for index, (nvml_index, _) in enumerate(nvml.visible_devices(setting, uuids)):
        if nvml_index in by_index:
            number = nvml_index if setting is None else index
            kept.append(dict(by_index[nvml_index], index=number, nvml_index=nvml_index))
    return kept


def from_library(library: Any) -> List[Gpu]:
    """Return what NVML (an initialised ``pynvml``) knows, in the form of ``parse_nvlink_status``."""
    found = []
    handles, uuids = nvml.devices(library)
    for index, handle in enumerate(handles):
        gpu = new_gpu(index, nvml.words(nvml.ask(library.nvmlDeviceGetName, handle)), uuids[index])
        for number in range(getattr(library, "NVML_NVLINK_MAX_LINKS", 18)):
            state = nvml.ask(library.nvmlDeviceGetNvLinkState, handle, number)
            if state is None:
                continue
            link = new_link(gpu, number)
            link["state"] = "active" if state else "inactive"
            if state:
                link["speed"] = _speed(library, handle, number)
                for name, kind in OLDER:
                    counter = getattr(library, kind, None)
                    count = nvml.ask(library.nvmlDeviceGetNvLinkErrorCounter, handle, number, counter)
                    if count is not None:
                        link["counters"][name] = nvml.number(count)
        found.append(gpu)
    return found


def _speed(library: Any, handle: Any, number: int) -> Optional[float]:
    field = getattr(library, "NVML_FI_DEV_NVLINK_GET_SPEED", None)
    values = nvml.ask(getattr(library, "nvmlDeviceGetFieldValues", None), handle, [(field, number)]) if field else None
    try:
        if not values or values[0].nvmlReturn != 0:
            return None
        megabytes = int(values[0].value.uiVal)
    except (AttributeError, IndexError, TypeError, ValueError):
        return None
    return round(megabytes / 1000.0, 3) if megabytes else None


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Read the state of the links; ``check`` False: without ``nvidia-smi`` where NVML answers.

    ``{"source": "nvidia-smi"|"nvml"|"nvidia-smi+nvml"|"none", "gpus": [{"index", "nvml_index", "name", "uuid", "links":
    [{"link", "state": "active"|"inactive"|"unknown", "speed" (GB/s) or None, "counters": {name: int or None}, "other":
    {name: str}}], "message", "all_inactive"}], "raw": {"e": str, "s": str}, "error": str or None}``. A node without
    NVLink has no links and no error.
    """
    share = min(deadline * 0.4, 20.0)
    task = nvml.NvmlTask(from_library)
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not args.get("check", True):
        known, _ = task.result(share)
        if known is not None:
            source = "nvml" if any(gpu["links"] for gpu in known) else "none"
            return {"source": source, "gpus": visible(known, setting), "raw": {}, "error": None}
    status = run_command.run(["nvidia-smi", "nvlink", "-s"], share)
    errors = status if status.missing else run_command.run(["nvidia-smi", "nvlink", "-e"], share)
    known, nvml_error = task.result(deadline * 0.1)
    links = merge(parse_nvlink_status(status.stdout).values["gpus"], parse_nvlink_errors(errors.stdout).values["gpus"])
    sources = (("nvidia-smi", links), ("nvml", known or []))
    return {
        "source": "+".join(name for name, found in sources if any(gpu["links"] for gpu in found)) or "none",
        "gpus": visible(merge(links, known or []), setting),
        "raw": {"e": errors.stdout[:_RAW_LIMIT], "s": status.stdout[:_RAW_LIMIT]},
        "error": _problem(status, errors, nvml_error),
    }


def _problem(
    status: run_command.CommandResult, errors: run_command.CommandResult, nvml_error: Optional[str]
) -> Optional[str]:
    if status.missing:
        return nvml_error and "no nvidia-smi on this node; " + nvml_error
    problems = parse_errors("\n".join([status.stdout, status.stderr, errors.stdout, errors.stderr]))
    printed = list(dict.fromkeys(map(problem_text, problems)))
    return "; ".join(printed[:10]) or status.why() or errors.why()


def judge(value: Dict[str, Any]) -> List[Judgement]:
    """Return what is bad on this node alone: GPUs with fewer or slower links than the others, errors that were counted.

    Inactive links alone are no fault: GPUs on PCIe have links for bridges that may be absent.
    """
    gpus = objects(value.get("gpus"))
    judged = Judgements()
    kinds: Dict[str, List[Dict[str, Any]]] = {}
    for gpu in gpus:
        kinds.setdefault(str(gpu.get("name")), []).append(gpu)
    for alike in kinds.values():
        _compared(alike, judged)
    for gpu in gpus:
        _counted(gpu, judged)
    return judged.all()


def _compared(gpus: List[Dict[str, Any]], judged: Judgements) -> None:
    active = [[link for link in objects(gpu.get("links")) if link.get("state") == "active"] for gpu in gpus]
    most = max(len(links) for links in active)
    speeds = sorted(speed for links in active for link in links if (speed := count(link, "speed")) is not None)
    usual = speeds[len(speeds) // 2] if speeds else 0.0
    for gpu, mine in zip(gpus, active):  # noqa: B905 - Python 3.8 knows no strict=
        names = [str(link.get("link")) for link in objects(gpu.get("links")) if link.get("state") == "inactive"]
        if len(mine) < most and (names or gpu.get("all_inactive") or mine):
            which = ": %s inactive" % some(names) if names and mine else ""
            text = "%d of the %d NVLinks that other GPUs have are active%s" % (len(mine), most, which)
            # On boards all GPUs are connected; between cards, bridges are plugged in where somebody wants them.
            board = most >= _BOARD_LINKS and "PCIe" not in str(gpu.get("name"))
            judged.add(gpu, "nvlink", "bad" if board else "warn", text, "nvlink-active")
        slow = [str(link.get("link")) for link in mine if (count(link, "speed") or usual) < 0.9 * usual]
        if slow:
            text = "NVLinks %s are slower than the usual %g GB/s" % (some(slow), usual)
            judged.add(gpu, "nvlink", "warn", text, "nvlink-speed")


def _counted(gpu: Dict[str, Any], judged: Judgements) -> None:
    """Judge counters since the driver was loaded; only a second reading shows when they grew."""
    totals: Dict[str, int] = {}
    for link in objects(gpu.get("links")):
        for name, total in part(link, "counters").items():
            if name in ERRORS and isinstance(total, int) and not isinstance(total, bool) and total > 0:
                totals[name] = totals.get(name, 0) + total
    if totals:
        words = ", ".join("%d %s" % (total, name.replace("_", " ")) for name, total in sorted(totals.items()))
        verdict = "warn" if totals.get("link_recovery_failed_events") else "note"
        text = "NVLink errors since the driver was loaded: %s" % words
        judged.add(gpu, "nvlink", verdict, text, "nvlink-counters")


PROBE = ProbeSpec(
    name="nvlink",
    title="NVLink state, speed and error counters",
    phase="driver",
    passive=True,
    needs="nvidia-smi, or the NVIDIA driver's NVML",
    gives="per GPU and link: state, speed in GB/s, replay, recovery and CRC counters",
    run=run,
    judge=judge,
    requires="gpus",
    next="ssh {node} nvidia-smi nvlink -s",
    watch=True,
)

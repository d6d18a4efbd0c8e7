"""NVLink: state, speed and error counters of each link, from ``nvidia-smi nvlink`` and from NVML."""

from __future__ import annotations

import os
import re
from typing import Any, Dict, List, Optional, Tuple

from fabtui_probes import commands, nvidia_smi, nvml

_RAW_LIMIT = 256 * 1024
_MAX_LINKS = 64

_GPU = re.compile(r"GPU ([0-9]{1,4}): (.{1,120}?)(?: \(UUID: ([^)]{1,80})\))?", re.ASCII)
_LINK = re.compile(r"Link ([0-9]{1,3}): (.{1,200})", re.ASCII)
_SPEED = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,6})?) GB/s", re.ASCII)
_COUNT = re.compile(r"[0-9]{1,20}", re.ASCII)
_ALL_INACTIVE = re.compile(r"all links are inactive", re.IGNORECASE)

# NVML also counts CRC errors in data packets, but those move on healthy links too (seen on H200).
_NVML_COUNTERS = (
    ("replay", "NVML_NVLINK_ERROR_DL_REPLAY"),
    ("recovery", "NVML_NVLINK_ERROR_DL_RECOVERY"),
    ("crc", "NVML_NVLINK_ERROR_DL_CRC_FLIT"),
)

_COUNTERS = {"replay_errors": "replay", "recovery_errors": "recovery", "crc_errors": "crc"}

Gpu = Dict[str, Any]


def _gpu(index: int, name: Optional[str], uuid: Optional[str]) -> Gpu:
    return {"index": index, "name": name, "uuid": uuid, "links": [], "message": None}


def _walk(text: str) -> Tuple[List[Gpu], List[Tuple[Gpu, int, str]]]:
    """Return the GPUs named in the text and (gpu, link, what is said of the link) for each line about a link."""
    found: List[Gpu] = []
    lines: List[Tuple[Gpu, int, str]] = []
    for line in text.splitlines():
        line = line.strip()
        header = _GPU.fullmatch(line)
        link = _LINK.fullmatch(line)
        if header:
            found.append(_gpu(int(header.group(1)), header.group(2), header.group(3)))
        elif link and found and int(link.group(1)) < _MAX_LINKS:
            lines.append((found[-1], int(link.group(1)), link.group(2).strip()))
        elif found and line.startswith("NVML:"):
            found[-1]["message"] = line[:300]
    return found, lines


def _link(gpu: Gpu, number: int) -> Dict[str, Any]:
    for link in gpu["links"]:
        if link["link"] == number:
            return link  # type: ignore[no-any-return]
    link = {"link": number, "state": "unknown", "speed": None, "counters": {}, "other": {}}
    gpu["links"].append(link)
    return link


def parse_nvlink_status(text: str) -> List[Gpu]:
    """Return the GPUs and links that ``nvidia-smi nvlink -s`` printed.

    Returns:
        ``[{"index", "name", "uuid", "links": [{"link", "state", "speed" (GB/s), "counters", "other"}], "message",
        "all_inactive"}]``. Empty text gives no GPUs: the machine has no NVLink, which is neither good nor bad.
        ``all_inactive`` is True where the tool says so instead of listing links. What it says of a link and is not
        known here is kept in ``other["status"]``, with the state ``unknown``.
    """
    found, lines = _walk(text)
    for gpu in found:
        gpu["all_inactive"] = bool(_ALL_INACTIVE.search(gpu["message"] or ""))
    for gpu, number, said in lines:
        speed = _SPEED.fullmatch(said)
        link = _link(gpu, number)
        if speed:
            link.update(state="active", speed=float(speed.group(1)))
        elif said.strip("<>").strip().lower() == "inactive":
            link["state"] = "inactive"
        else:
            link["other"]["status"] = said
    return found


def parse_nvlink_errors(text: str) -> List[Gpu]:
    """Return the GPUs and links that ``nvidia-smi nvlink -e`` printed, in the form of ``parse_nvlink_status``.

    Whole numbers are counters, under the name printed in snake case (``replay``, ``recovery`` and ``crc`` for the
    first three); ``N/A`` and the like are counters of None; everything else, as error rates and byte counts with a
    unit, is kept as text in ``other``.
    """
    found, lines = _walk(text)
    for gpu, number, said in lines:
        label, colon, value = said.rpartition(":")
        name = re.sub("[^a-z0-9]+", "_", label.lower()).strip("_")[:60]
        if not colon or not name:
            continue
        value = value.strip()
        link = _link(gpu, number)
        if _COUNT.fullmatch(value):
            link["counters"][_COUNTERS.get(name, name)] = int(value)
        elif value.strip("<>").strip().lower() in ("n/a", "not supported", "not available", "unknown", "unknown error"):
            link["counters"][_COUNTERS.get(name, name)] = None
        else:
            link["other"][name] = value[:100]
    return found


def merge(*sources: List[Gpu]) -> List[Gpu]:
    """Return the GPUs of several sources as one list; where two know a thing, the earlier source is believed."""
    merged: Dict[int, Gpu] = {}
    for source in sources:
        for gpu in source:
            target = merged.setdefault(gpu["index"], _gpu(gpu["index"], None, None))
            for key in ("name", "uuid", "message"):
                target[key] = target[key] if target[key] is not None else gpu.get(key)
            target["all_inactive"] = bool(target.get("all_inactive") or gpu.get("all_inactive"))
            for link in gpu["links"]:
                _merge_link(_link(target, link["link"]), link)
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
    for kind in ("counters", "other"):
        for name, value in link[kind].items():
            if target[kind].get(name) is None:
                target[kind][name] = value


def visible(found: List[Gpu], setting: Optional[str]) -> List[Gpu]:
    """Return the GPUs that ``CUDA_VISIBLE_DEVICES`` leaves: ``index`` counts those, ``nvml_index`` all of them."""
    highest = max([gpu["index"] for gpu in found], default=-1)
    by_index = {gpu["index"]: gpu for gpu in found}
    uuids = [by_index[index]["uuid"] if index in by_index else None for index in range(highest + 1)]
    kept = []
    for index, (nvml_index, _) in enumerate(nvidia_smi.visible_devices(setting, uuids)):
        if nvml_index in by_index:
            number = nvml_index if setting is None else index
            kept.append(dict(by_index[nvml_index], index=number, nvml_index=nvml_index))
    return kept


def deltas(before: Dict[str, Any], after: Dict[str, Any]) -> List[Dict[str, Any]]:
    """Return how the counters moved between two values of this probe.

    Returns:
        For each GPU of either value, ``{"index", "name", "uuid", "before", "after" (whether it was there), "links":
        [{"link", "state_before", "state_after", "counters": {name: int or None}, "reset": [name]}]}``. A difference is
        None when either side is unknown. A counter that went down was reset in between: its difference is what it
        counted since (a lower bound), and its name is in ``reset``.
    """
    old, new = _by_identity(before), _by_identity(after)
    result = []
    for identity in list(new) + [known for known in old if known not in new]:
        left, right = old.get(identity), new.get(identity)
        shown = right or left or {}
        left_links = {link["link"]: link for link in (left or {}).get("links", [])}
        right_links = {link["link"]: link for link in (right or {}).get("links", [])}
        result.append(
            {
                "index": shown.get("index"),
                "name": shown.get("name"),
                "uuid": shown.get("uuid"),
                "before": left is not None,
                "after": right is not None,
                "links": [
                    _delta(number, left_links.get(number), right_links.get(number))
                    for number in sorted(set(left_links) | set(right_links))
                ],
            }
        )
    return result


def _by_identity(value: Dict[str, Any]) -> Dict[Any, Gpu]:
    return {gpu.get("uuid") or gpu.get("index"): gpu for gpu in value.get("gpus", [])}


def _delta(number: int, left: Optional[Dict[str, Any]], right: Optional[Dict[str, Any]]) -> Dict[str, Any]:
    old = left["counters"] if left else {}
    new = right["counters"] if right else {}
    counters: Dict[str, Optional[int]] = {}
    reset = []
    for name in sorted(set(old) | set(new)):
        first, last = old.get(name), new.get(name)
        if first is None or last is None:
            counters[name] = None
        elif last < first:
            counters[name] = last
            reset.append(name)
        else:
            counters[name] = last - first
    return {
        "link": number,
        "state_before": left["state"] if left else "unknown",
        "state_after": right["state"] if right else "unknown",
        "counters": counters,
        "reset": reset,
    }


def from_library(library: Any) -> List[Gpu]:
    """Return what NVML (an initialised ``pynvml``) knows, in the form of ``parse_nvlink_status``."""
    found = []
    for index in range(nvml.number(nvml.ask(library.nvmlDeviceGetCount)) or 0):
        handle = nvml.ask(library.nvmlDeviceGetHandleByIndex, index)
        gpu = _gpu(index, None, None)
        gpu["name"] = nvml.words(nvml.ask(library.nvmlDeviceGetName, handle))
        gpu["uuid"] = nvml.words(nvml.ask(library.nvmlDeviceGetUUID, handle))
        for number in range(getattr(library, "NVML_NVLINK_MAX_LINKS", 18)):
            state = nvml.ask(library.nvmlDeviceGetNvLinkState, handle, number)
            if state is None:
                continue
            link = _link(gpu, number)
            link["state"] = "active" if state else "inactive"
            if state:
                link["speed"] = _speed(library, handle, number)
                for name, kind in _NVML_COUNTERS:
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
    """Look at the links.

    Returns:
        ``{"source": "nvidia-smi"|"nvml"|"nvidia-smi+nvml"|"none", "gpus": [{"index", "nvml_index", "name", "uuid",
        "links": [{"link", "state": "active"|"inactive"|"unknown", "speed" (GB/s) or None, "counters": {name: int or
        None}, "other": {name: str}}], "message", "all_inactive"}], "raw": {"e": str, "s": str}, "error": str or
        None}``.
        A node without NVLink has no links and no error.
    """
    share = min(deadline * 0.4, 20.0)
    task = nvml.Task(from_library)
    status = commands.run(["nvidia-smi", "nvlink", "-s"], share)
    errors = status if status.missing else commands.run(["nvidia-smi", "nvlink", "-e"], share)
    known, nvml_error = task.result(deadline * 0.1)
    told = merge(parse_nvlink_status(status.stdout), parse_nvlink_errors(errors.stdout))
    sources = (("nvidia-smi", told), ("nvml", known or []))
    return {
        "source": "+".join(name for name, found in sources if any(gpu["links"] for gpu in found)) or "none",
        "gpus": visible(merge(told, known or []), os.environ.get("CUDA_VISIBLE_DEVICES")),
        "raw": {"e": errors.stdout[:_RAW_LIMIT], "s": status.stdout[:_RAW_LIMIT]},
        "error": _problem(status, errors, nvml_error),
    }


def _problem(status: commands.Result, errors: commands.Result, nvml_error: Optional[str]) -> Optional[str]:
    if status.missing:
        return nvml_error and "no nvidia-smi on this node; " + nvml_error
    everything = "\n".join([status.stdout, status.stderr, errors.stdout, errors.stderr])
    said: List[str] = []
    for problem in nvidia_smi.parse_errors(everything):
        words = " ".join(filter(None, [problem["bus"], problem["reason"]]))
        if words not in said:
            said.append(words)
    for result in (status, errors):
        why = result.why()
        if why and not said:
            said.append(why)
    return "; ".join(said[:10]) or None

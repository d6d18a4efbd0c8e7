"""NVLink: state, speed and error counters of each link, from ``nvidia-smi nvlink`` and from NVML."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.parsers.nvidia.smi_nvlink import (
    ERRORS,
    Gpu,
    is_card,
    new_gpu,
    new_link,
    parse_nvlink_errors,
    parse_nvlink_status,
)
from fabtui_node.parsers.nvidia.values import parse_errors, problem_text
from fabtui_node.probes.judgement import count, objects, part, seconds_since_boot, some
from fabtui_node.probes.nvidia import nvml
from fabtui_node.probes.nvidia.gpu_rules import Judgements
from fabtui_node.probes.nvidia.nvlink_counters import OLDER
from fabtui_node.registry import Judgement, ProbeSpec
from fabtui_node.system import run_command, sysfs

_RAW_LIMIT = 256 * 1024
#: Minimum number of links of GPUs on boards, where all links are connected.
_CARD_LINKS = 12
_BOARD_LINKS = 12
#: Counters of NVLink5 by their names in nvidia-smi; older GPUs have none of them.
_NVLINK5 = {
    "link_recovery_successful_events": "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS",
    "link_recovery_failed_events": "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS",
    "total_link_recovery_events": "NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS",
    "effective_errors": "NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS",
    "symbol_errors": "NVML_FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS",
    "effective_ber": "NVML_FI_DEV_NVLINK_COUNT_EFFECTIVE_BER",
    "symbol_ber": "NVML_FI_DEV_NVLINK_COUNT_SYMBOL_BER",
    **{"fec_errors_%d" % at: "NVML_FI_DEV_NVLINK_COUNT_FEC_HISTORY_%d" % at for at in range(16)},
}
#: Limits of bit error rates: those of Google's health checks of GB200 and GB300 (GoogleCloudPlatform/cluster-toolkit).
_RATES = {"effective_ber": ("effective BER", 1e-9), "symbol_ber": ("symbol BER", 1e-25)}
#: Recoveries of a link: more than this number in an hour, and of at least this number since the boot.
_RECOVERIES_PER_HOUR = 1.0
_FEWEST_RECOVERIES = 10
#: The buckets of FEC from this number on hold codewords that it could just correct; a link is noisy above this share.
_FEC_TAIL = 12
_TAIL_SHARE = 1e-9


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
    gpus = []
    handles, uuids = nvml.devices(library)
    for index, handle in enumerate(handles):
        gpu = new_gpu(index, nvml.words(nvml.ask(library.nvmlDeviceGetName, handle)), uuids[index])
        nvlink5 = True
        for number in range(getattr(library, "NVML_NVLINK_MAX_LINKS", 18)):
            state = nvml.ask(library.nvmlDeviceGetNvLinkState, handle, number)
            if state is None:
                continue
            link = new_link(gpu, number)
            link["state"] = "active" if state else "inactive"
            if state:
                fields = _fields(library, handle, number, nvlink5)
                nvlink5 = nvlink5 and len(fields) > 1
                if megabytes := fields.pop("speed", None):
                    link["speed"] = round(megabytes / 1000.0, 3)
                for name, kind in OLDER:
                    counter = getattr(library, kind, None)
                    count = nvml.ask(library.nvmlDeviceGetNvLinkErrorCounter, handle, number, counter)
                    if count is not None:
                        link["counters"][name] = nvml.number(count)
                _add_fields(link, fields)
        gpus.append(gpu)
    return gpus


def _fields(library: Any, handle: Any, number: int, nvlink5: bool) -> Dict[str, int]:
    """Return the fields that a link answers: its ``speed`` (MB/s), and those of `_NVLINK5` by their names."""
    names = {"speed": "NVML_FI_DEV_NVLINK_GET_SPEED", **(_NVLINK5 if nvlink5 else {})}
    known = {name: code for name, field in names.items() if (code := getattr(library, field, None)) is not None}
    asked = [(code, number) for code in known.values()]
    answers = nvml.ask(getattr(library, "nvmlDeviceGetFieldValues", None), handle, asked) if asked else None
    if answers is None and nvlink5:
        # A driver may refuse all because it does not know one.
        return _fields(library, handle, number, False)
    counts = {}
    for name, answer in zip(known, answers or ()):  # noqa: B905 - Python 3.8 knows no strict=
        found = nvml.field_count(answer, "uiVal" if name == "speed" else None)
        if found is not None:
            counts[name] = found
    return counts


def _add_fields(link: Dict[str, Any], fields: Dict[str, int]) -> None:
    for name, number in fields.items():
        if name in _RATES:
            # NVML packs a rate: the mantissa above eight bits of a negative exponent; 15e-255 means none.
            link.setdefault("rates", {})[name] = float("%de-%d" % (number >> 8 & 0xF, number & 0xFF))
        else:
            link["counters"][name] = number
            if name.startswith("fec_errors_"):
                link.setdefault("fec", {})[name.rpartition("_")[2]] = number


def run(args: Dict[str, Any], emit: Any, deadline: float) -> Dict[str, Any]:
    """Read the state of the links; ``check`` False: without ``nvidia-smi`` where NVML answers.

    ``{"source": "nvidia-smi"|"nvml"|"nvidia-smi+nvml"|"none", "gpus": [{"index", "nvml_index", "name", "uuid", "links":
    [{"link", "state": "active"|"inactive"|"unknown", "speed" (GB/s) or None, "counters": {name: int or None}, "other":
    {name: str}}], "message", "all_inactive"}], "uptime" (s), "raw": {"e": str, "s": str}, "error": str or None}``. A
    node without NVLink has no links and no error. ``rates`` and ``fec`` of a link: see `parse_nvlink_errors`.
    """
    share = min(deadline * 0.4, 20.0)
    task = nvml.NvmlTask(from_library)
    setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if not args.get("check", True):
        known, _ = task.result(share)
        if known is not None:
            source = "nvml" if any(gpu["links"] for gpu in known) else "none"
            return {"source": source, "gpus": visible(known, setting), "uptime": _uptime(), "raw": {}, "error": None}
    status = run_command.run(["nvidia-smi", "nvlink", "-s"], share)
    errors = status if status.missing else run_command.run(["nvidia-smi", "nvlink", "-e"], share)
    known, nvml_error = task.result(deadline * 0.1)
    links = merge(parse_nvlink_status(status.stdout).values["gpus"], parse_nvlink_errors(errors.stdout).values["gpus"])
    sources = (("nvidia-smi", links), ("nvml", known or []))
    return {
        "source": "+".join(name for name, found in sources if any(gpu["links"] for gpu in found)) or "none",
        "gpus": visible(merge(links, known or []), setting),
        "uptime": _uptime(),
        "raw": {"e": errors.stdout[:_RAW_LIMIT], "s": status.stdout[:_RAW_LIMIT]},
        "error": _problem(status, errors, nvml_error),
    }


def _uptime() -> Optional[float]:
    return seconds_since_boot(sysfs.text("/proc/uptime"))


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

    Inactive links alone are not a fault: GPUs on PCIe have links for bridges that may be absent.
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
        _noisy(gpu, count(value, "uptime"), judged)
    return judged.all()


def _compared(gpus: List[Dict[str, Any]], judged: Judgements) -> None:
    active = [[link for link in objects(gpu.get("links")) if link.get("state") == "active"] for gpu in gpus]
    most = max(len(links) for links in active)
    speeds = sorted(speed for links in active for link in links if (speed := count(link, "speed")) is not None)
    usual = speeds[len(speeds) // 2] if speeds else 0.0
    for gpu, mine in zip(gpus, active):  # noqa: B905 - Python 3.8 knows no strict=
        names = [str(link.get("link")) for link in objects(gpu.get("links")) if link.get("state") == "inactive"]
        if not most and len(names) > _CARD_LINKS and not is_card(gpu.get("name")):
            text = "all %d NVLinks are down, as on every GPU listed" % len(names)
            judged.add(gpu, "nvlink", "bad", text, "nvlink-fabric")
        if len(mine) < most and (names or gpu.get("all_inactive") or mine):
            which = ": %s inactive" % some(names) if names and mine else ""
            text = "%d of the %d NVLinks that other GPUs have are active%s" % (len(mine), most, which)
            # On boards all GPUs are connected; between cards, bridges are plugged in where somebody wants them.
            if not mine and is_card(gpu.get("name")):
                # Nobody plugged a bridge in here.
                continue
            board = most >= _BOARD_LINKS and not is_card(gpu.get("name"))
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
        judged.add(gpu, "nvlink_errors", verdict, text, "nvlink-counters")


def _noisy(gpu: Dict[str, Any], uptime: Optional[float], judged: Judgements) -> None:
    """Judge error rates of links: bit errors, recoveries in an hour, and codewords that could just be corrected."""
    links = objects(gpu.get("links"))
    over: List[Tuple[float, Dict[str, Any]]] = []
    words = []
    for name, (title, limit) in _RATES.items():
        rates = [(count(part(link, "rates"), name) or 0.0, link) for link in links]
        above = [(rate, link) for rate, link in rates if rate > limit]
        if above:
            words.append("%s up to %.2g (limit %g)" % (title, max(rate for rate, _ in above), limit))
        over += [one for one in above if one[1] not in [link for _, link in over]]
    _add_noisy(gpu, over, ", ".join(words) + "; limits of Google's health checks", "warn", judged)
    if uptime is not None and uptime >= 3600:
        counted = [(_recoveries(link), link) for link in links]
        often = [(many * 3600 / uptime, link) for many, link in counted if many >= _FEWEST_RECOVERIES]
        over = [(rate, link) for rate, link in often if rate > _RECOVERIES_PER_HOUR]
        most = max([rate for rate, _ in over], default=0.0)
        text = "up to %.2g recoveries an hour since the node was booted, more than %g" % (most, _RECOVERIES_PER_HOUR)
        _add_noisy(gpu, over, text, "warn", judged)
    shares = [(_tail(part(link, "fec")), link) for link in links]
    over = [(share, link) for share, link in shares if share > _TAIL_SHARE]
    most = max([share for share, _ in over], default=0.0)
    text = "FEC had to correct %d or more symbols in a share of up to %.2g of the codewords" % (_FEC_TAIL, most)
    _add_noisy(gpu, over, text + "; no limit is published", "note", judged)


def _add_noisy(
    gpu: Dict[str, Any], over: List[Tuple[float, Dict[str, Any]]], text: str, verdict: str, judged: Judgements
) -> None:
    if over:
        names = [str(link.get("link")) for _, link in over]
        which = "NVLink%s %s: " % ("s" if len(names) > 1 else "", some(names))
        judged.add(gpu, "nvlink_errors", verdict, which + text, "nvlink-error-rate")


def _recoveries(link: Dict[str, Any]) -> float:
    counters = part(link, "counters")
    return max(count(counters, name) or 0 for name in ("total_link_recovery_events", "recovery"))


def _tail(fec: Dict[str, Any]) -> float:
    counts = {int(name): number for name in fec if name.isdecimal() and (number := count(fec, name)) is not None}
    total = sum(counts.values())
    return sum(number for name, number in counts.items() if name >= _FEC_TAIL) / total if total > 0 else 0.0


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

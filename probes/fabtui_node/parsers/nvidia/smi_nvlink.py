"""``nvidia-smi nvlink``: state, speed, error counters, remote ends and capabilities of each link."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional, Tuple

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.nvidia.values import bare, complain, is_noise, snake, truth

_MAX_LINKS = 64
_MAX_GPUS = 256

_GPU = re.compile(r"GPU ([0-9]{1,4}): (.{1,120}?)(?: \(UUID: ([^)]{1,80})\))?", re.ASCII)
_GPU_AT = re.compile(r"GPU ([0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", re.ASCII | re.IGNORECASE)
_LINK = re.compile(r"Link ([0-9]{1,3})(?:: |, )(.{1,200})", re.ASCII)
_SPEED = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,6})?) GB/s", re.ASCII)
_REMOTE = re.compile(r"Remote Device ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]): Link ([0-9]{1,3})")
_COUNT = re.compile(r"[0-9]{1,20}", re.ASCII)
_RATE = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,6})?e(?:-[0-9]{1,3}|\+?[0-9]{1,2})", re.ASCII)
_FEC = re.compile(r"fec_errors_([0-9]{1,2})", re.ASCII)
_ALL_INACTIVE = re.compile(r"all links are inactive", re.IGNORECASE)
_NO_NVLINK = re.compile(r"does not have or support nvlink", re.IGNORECASE)
_UNKNOWN = ("n/a", "not supported", "not available", "unknown", "unknown error")

_COUNTERS = {"replay_errors": "replay", "recovery_errors": "recovery", "crc_errors": "crc"}

#: The counters of which each count is an error or costs traffic, by their names here. Others move on healthy links:
#: traffic, bit errors of single lanes before correction, and the first FEC bucket (codewords without an error).
ERRORS = frozenset(
    (
        "replay",
        "recovery",
        "crc",
        "malformed_packet_errors",
        "buffer_overrun_errors",
        "rx_errors",
        "rx_remote_errors",
        "rx_general_errors",
        "local_link_integrity_errors",
        "tx_discards",
        "link_recovery_successful_events",
        "link_recovery_failed_events",
        "total_link_recovery_events",
        "effective_errors",
        "symbol_errors",
    )
)

Gpu = Dict[str, Any]
Walked = Tuple[List[Gpu], List[Tuple[Gpu, int, str]]]


def new_gpu(index: Optional[int], name: Optional[str], uuid: Optional[str]) -> Gpu:
    """Return a GPU of which no link is known yet."""
    return {"index": index, "name": name, "uuid": uuid, "links": [], "message": None}


def new_link(gpu: Gpu, number: int) -> Dict[str, Any]:
    """Return a GPU's link of that number, made if it is not there yet."""
    for link in gpu["links"]:
        if link["link"] == number:
            return link  # type: ignore[no-any-return]
    link = {"link": number, "state": "unknown", "speed": None, "counters": {}, "other": {}}
    gpu["links"].append(link)
    return link


def _walk(text: str, notes: Notes) -> Walked:
    """Return the GPUs named in the text and (gpu, link, text) for each line about a link."""
    found: List[Gpu] = []
    lines: List[Tuple[Gpu, int, str]] = []
    for line in text.splitlines():
        if is_noise(line):
            continue
        line = line.strip()
        header = _GPU.fullmatch(line)
        at = _GPU_AT.fullmatch(line)
        link = _LINK.fullmatch(line)
        if len(found) < _MAX_GPUS and header:
            found.append(new_gpu(int(header[1]), header[2], header[3]))
        elif len(found) < _MAX_GPUS and at:
            found.append(dict(new_gpu(None, None, None), bus=at[1]))
        elif link and found and int(link[1]) < _MAX_LINKS:
            lines.append((found[-1], int(link[1]), link[2].strip()))
        elif line.startswith("NVML:") or _NO_NVLINK.search(line):
            notes.warn(line)
            if found:
                found[-1]["message"] = line[:300]
        else:
            notes.puzzled(line)
    return found, lines


def _status(text: str, notes: Notes) -> List[Gpu]:
    found, lines = _walk(text, notes)
    for gpu in found:
        gpu["all_inactive"] = bool(_ALL_INACTIVE.search(gpu["message"] or ""))
    for gpu, number, text in lines:
        speed = _SPEED.fullmatch(text)
        link = new_link(gpu, number)
        if speed:
            link.update(state="active", speed=float(speed[1]))
        elif bare(text).lower() == "inactive":
            link["state"] = "inactive"
        else:
            link["other"]["status"] = text
            notes.puzzled("Link %d: %s" % (number, text))
    return found


def parse_nvlink_status(text: str) -> List[Gpu]:
    """Return the GPUs and links that ``nvidia-smi nvlink -s`` printed.

    Returns:
        ``[{"index", "name", "uuid", "links": [{"link", "state", "speed" (GB/s), "counters", "other"}], "message",
        "all_inactive"}]``. Empty text gives no GPUs: the machine has no NVLink, which is neither good nor bad.
        ``all_inactive`` is True if the tool prints that instead of listing links. Text of a link that is not
        known here is kept in ``other["status"]``, with the state ``unknown``.
    """
    return _status(text, Notes())


def _errors(text: str, notes: Notes) -> List[Gpu]:
    found, lines = _walk(text, notes)
    for gpu, number, text in lines:
        label, colon, value = text.rpartition(":")
        name = snake(label)
        if not colon or not name:
            notes.puzzled("Link %d: %s" % (number, text))
            continue
        _take(new_link(gpu, number), name, value.strip())
    return found


def _take(link: Dict[str, Any], name: str, value: str) -> None:
    fec = _FEC.fullmatch(name)
    if _COUNT.fullmatch(value):
        link["counters"][_COUNTERS.get(name, name)] = int(value)
        if fec:
            link.setdefault("fec", {})[fec[1]] = int(value)
    elif bare(value).lower() in _UNKNOWN:
        link["counters"][_COUNTERS.get(name, name)] = None
    else:
        link["other"][name] = value[:100]
        if _RATE.fullmatch(value):
            link.setdefault("rates", {})[name] = float(value)


def parse_nvlink_errors(text: str) -> List[Gpu]:
    """Return the GPUs and links that ``nvidia-smi nvlink -e`` printed, in the form of ``parse_nvlink_status``.

    Integers are counters, under the name printed in snake case (``replay``, ``recovery`` and ``crc`` for the first
    three); ``N/A`` and the like are counters of None. Other values, as error rates and byte counts with a unit, are
    kept as text in ``other``. Error rates are numbers in ``rates`` too; ``15e-255`` is the minimum and means none.
    The FEC buckets are in ``fec`` by their number.
    """
    return _errors(text, Notes())


def _remotes(text: str, notes: Notes) -> List[Gpu]:
    found, lines = _walk(text, notes)
    for gpu, number, text in lines:
        remote = _REMOTE.fullmatch(text)
        if not remote:
            notes.puzzled("Link %d: %s" % (number, text))
            continue
        # All ones are what a virtual machine sees of a switch that is not its own.
        seen = None if remote[1].upper().startswith("FFFFFFFF") else remote[1]
        gpu["links"].append({"link": number, "remote_bus": seen, "remote_link": int(remote[2]) if seen else None})
    return found


def _capabilities(text: str, notes: Notes) -> List[Gpu]:
    found, lines = _walk(text, notes)
    for gpu, number, text in lines:
        label, colon, value = text.rpartition(":")
        name = re.sub("_(is_)?supported$", "", snake(label))
        if not colon or not name:
            notes.puzzled("Link %d: %s" % (number, text))
            continue
        known = [link for link in gpu["links"] if link["link"] == number]
        if not known:
            gpu["links"].append({"link": number, "supported": {}})
        (known or gpu["links"])[-1]["supported"][name] = truth(value)
    return found


def _summary(gpus: List[Gpu], notes: Notes, text: str) -> Dict[str, Any]:
    values = {"gpus": gpus, "links_total": sum(len(gpu["links"]) for gpu in gpus), "errors": complain(text, notes)}
    if not text.strip():
        notes.warn("no output: a machine without NVLink prints none")
    return values


def _read_status(text: str) -> Reading:
    notes = Notes()
    values = _summary(_status(text, notes), notes, text)
    for gpu in values["gpus"]:
        down = [str(link["link"]) for link in gpu["links"] if link["state"] == "inactive"]
        if down:
            notes.warn("GPU %s: links %s are inactive" % (gpu["index"], ", ".join(down)))
    return notes.reading(values)


def _read_errors(text: str) -> Reading:
    notes = Notes()
    values = _summary(_errors(text, notes), notes, text)
    for gpu in values["gpus"]:
        for link in gpu["links"]:
            counted = {name: count for name, count in link["counters"].items() if count and name in ERRORS}
            if counted:
                words = ", ".join("%s %d" % item for item in counted.items())
                notes.warn("GPU %s link %d: %s" % (gpu["index"], link["link"], words))
    return notes.reading(values)


def _read_remotes(text: str) -> Reading:
    notes = Notes()
    return notes.reading(_summary(_remotes(text, notes), notes, text))


def _read_capabilities(text: str) -> Reading:
    notes = Notes()
    return notes.reading(_summary(_capabilities(text, notes), notes, text))


def _likely(pattern: str, option: str) -> Any:
    line = re.compile(r"^\s{0,20}" + pattern, re.MULTILINE)
    asked = re.compile(r"nvidia-smi nvlink (?:%s)\b" % option)

    def likely(text: str) -> float:
        if line.search(text):
            return 0.95
        return 0.8 if asked.search(text[:400]) else 0.0

    return likely


def _likely_status(text: str) -> float:
    links = re.search(r"^\s{0,20}Link [0-9]{1,3}: (?:[0-9.]{1,9} GB/s|<inactive>)", text, re.MULTILINE)
    if links or re.search("^NVML: Unable to retrieve nvlink information", text, re.IGNORECASE | re.MULTILINE):
        return 0.95
    return 0.9 if _NO_NVLINK.search(text) else _likely("(?!)", "-s|--status")(text)


FORMATS = [
    Format(
        "nvidia-smi-nvlink-s",
        "state and speed of each NVLink",
        ("nvidia-smi", "nvlink", "-s"),
        {"speed": "GB/s"},
        _likely_status,
        _read_status,
    ),
    Format(
        "nvidia-smi-nvlink-e",
        "error counters of each NVLink",
        ("nvidia-smi", "nvlink", "-e"),
        {"counters": "events since the driver was loaded", "fec": "codewords", "rates": "errors a bit"},
        _likely(r"Link [0-9]{1,3}: (?:[A-Za-z -]{1,60}Errors|[A-Z]\w{1,12} BER|Link recovery|Tx discards)", "-e|--err"),
        _read_errors,
    ),
    Format(
        "nvidia-smi-nvlink-R",
        "what each NVLink leads to",
        ("nvidia-smi", "nvlink", "-R"),
        {},
        _likely(r"Link [0-9]{1,3}: Remote Device", "-R|--remote"),
        _read_remotes,
    ),
    Format(
        "nvidia-smi-nvlink-c",
        "what each NVLink can do",
        ("nvidia-smi", "nvlink", "-c"),
        {},
        _likely(r"Link [0-9]{1,3}, [A-Za-z0-9 ]{1,60} supported:", "-c|--capabilities"),
        _read_capabilities,
    ),
]

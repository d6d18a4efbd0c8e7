"""``nvidia-smi nvlink``: state, speed, error counters, remote ends and capabilities of each link."""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, List, Optional, Tuple

from fabtui_node.parsers.base import Format, Likely, Notes, Reading, first_of
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

#: Counters that should stay at zero (our names). Others move on healthy links: traffic, bit errors of single lanes
#: before correction, and the first FEC bucket (codewords without an error).
ERRORS = frozenset(
    (
        *("replay", "recovery", "crc", "malformed_packet_errors", "buffer_overrun_errors", "rx_errors"),
        *("rx_remote_errors", "rx_general_errors", "local_link_integrity_errors", "tx_discards"),
        *("link_recovery_successful_events", "link_recovery_failed_events", "total_link_recovery_events"),
        *("effective_errors", "symbol_errors"),
    )
)

#: GPUs on cards; of their links, those that a bridge connects are active: 12 of 18 on an H100 NVL with all its bridges.
_CARD = re.compile(r"PCIe|\bNVL$|\bRTX\b|GeForce|Quadro", re.IGNORECASE)

Gpu = Dict[str, Any]
#: Keeps a line about a link of a GPU; returns False if it is not understood.
Take = Callable[[Gpu, int, str], bool]


def is_card(name: Any) -> bool:
    """Return True for the name of a GPU whose links may be inactive by design: nobody has to plug bridges in."""
    return isinstance(name, str) and _CARD.search(name.strip()) is not None


def new_gpu(index: Optional[int], name: Optional[str], uuid: Optional[str]) -> Gpu:
    return {"index": index, "name": name, "uuid": uuid, "links": [], "message": None}


def new_link(gpu: Gpu, number: int) -> Dict[str, Any]:
    """Return a GPU's link of that number, made if it is not there yet."""
    for link in gpu["links"]:
        if link["link"] == number:
            return link  # type: ignore[no-any-return]
    link = {"link": number, "state": "unknown", "speed": None, "counters": {}, "other": {}}
    gpu["links"].append(link)
    return link


def _read(text: str, take: Take, notes: Notes) -> Dict[str, Any]:
    """Return the GPUs named in the text, with what ``take`` keeps of each line about a link."""
    gpus: List[Gpu] = []
    for line in text.splitlines():
        if is_noise(line):
            continue
        line = line.strip()
        header, at, link = _GPU.fullmatch(line), _GPU_AT.fullmatch(line), _LINK.fullmatch(line)
        if len(gpus) < _MAX_GPUS and header:
            gpus.append(new_gpu(int(header[1]), header[2], header[3]))
        elif len(gpus) < _MAX_GPUS and at:
            gpus.append(dict(new_gpu(None, None, None), bus=at[1]))
        elif link and gpus and int(link[1]) < _MAX_LINKS:
            if not take(gpus[-1], int(link[1]), link[2].strip()):
                notes.puzzled("Link %d: %s" % (int(link[1]), link[2].strip()))
        elif line.startswith("NVML:") or _NO_NVLINK.search(line):
            notes.warn(line)
            if gpus:
                gpus[-1]["message"] = line[:300]
        else:
            notes.puzzled(line)
    total: Optional[int] = sum(len(gpu["links"]) for gpu in gpus)
    if _is_cut(gpus):
        gpus[-1]["cut"] = True
        most, index = max(len(gpu["links"]) for gpu in gpus), gpus[-1]["index"]
        place = "in GPU %s" % ("the last" if index is None else index)
        notes.warn("the text is cut off %s: %d of %d links listed" % (place, len(gpus[-1]["links"]), most))
        total = None
    if any(_LINK.fullmatch(line.strip()) for line in notes.unknown):
        notes.warn("the text begins within a GPU: its first lines are missing")
        total = None
    values = {"gpus": gpus, "links_total": total, "errors": complain(text, notes)}
    if not text.strip():
        notes.warn("no output: a machine without NVLink prints none")
    return values


def _is_cut(gpus: List[Gpu]) -> bool:
    """Return True if the list ends within its last GPU: it has fewer links than each other one, all of them working."""
    if len(gpus) < 2 or gpus[-1]["message"]:
        return False
    others = {len(gpu["links"]) for gpu in gpus[:-1]}
    states = {link.get("state") for link in gpus[-1]["links"]}
    return len(others) == 1 and len(gpus[-1]["links"]) < min(others) and "inactive" not in states


def _take_status(gpu: Gpu, number: int, text: str) -> bool:
    speed, link = _SPEED.fullmatch(text), new_link(gpu, number)
    if speed:
        link.update(state="active", speed=float(speed[1]))
    elif bare(text).lower() == "inactive":
        link["state"] = "inactive"
    else:
        link["other"]["status"] = text
        return False
    return True


def parse_nvlink_status(text: str) -> Reading:
    """Return the GPUs and links that ``nvidia-smi nvlink -s`` printed.

    ``gpus``: ``[{"index", "name", "uuid", "links": [{"link", "state", "speed" (GB/s), "counters", "other"}],
    "message", "all_inactive"}]``. Empty text gives no GPUs: the machine has no NVLink, which is neither good nor bad.
    ``all_inactive`` is True if the tool prints that instead of listing links. Text of a link that is not known here
    is kept in ``other["status"]``, with the state ``unknown``.
    """
    notes = Notes()
    values = _read(text, _take_status, notes)
    for gpu in values["gpus"]:
        gpu["all_inactive"] = bool(_ALL_INACTIVE.search(gpu["message"] or ""))
        down = [str(link["link"]) for link in gpu["links"] if link["state"] == "inactive"]
        if down and not is_card(gpu["name"]):
            notes.warn("GPU %s: links %s are inactive" % (gpu["index"], ", ".join(down)))
    return notes.reading(values)


def _take_errors(gpu: Gpu, number: int, text: str) -> bool:
    label, _, value = text.rpartition(":")
    name, value = snake(label), value.strip()
    if not name:
        return False
    link, fec = new_link(gpu, number), _FEC.fullmatch(name)
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
    return True


def parse_nvlink_errors(text: str) -> Reading:
    """Return the GPUs and links that ``nvidia-smi nvlink -e`` printed, in the form of ``parse_nvlink_status``.

    Integers are counters, under the name printed in snake case (``replay``, ``recovery`` and ``crc`` for the first
    three); ``N/A`` and the like are counters of None. Other values, as error rates and byte counts with a unit, are
    kept as text in ``other``. Error rates are numbers in ``rates`` too; ``15e-255`` is the minimum and means none.
    The FEC buckets are in ``fec`` by their number.
    """
    notes = Notes()
    values = _read(text, _take_errors, notes)
    for gpu in values["gpus"]:
        for link in gpu["links"]:
            counted = ["%s %d" % item for item in link["counters"].items() if item[1] and item[0] in ERRORS]
            if counted:
                notes.warn("GPU %s link %d: %s" % (gpu["index"], link["link"], ", ".join(counted)))
    return notes.reading(values)


def _take_remote(gpu: Gpu, number: int, text: str) -> bool:
    remote = _REMOTE.fullmatch(text)
    if remote:
        # All ones are what a virtual machine sees of a switch that is not its own.
        seen = None if remote[1].upper().startswith("FFFFFFFF") else remote[1]
        gpu["links"].append({"link": number, "remote_bus": seen, "remote_link": int(remote[2]) if seen else None})
    return remote is not None


def _take_capability(gpu: Gpu, number: int, text: str) -> bool:
    label, _, value = text.rpartition(":")
    name = re.sub("_(is_)?supported$", "", snake(label))
    if name:
        known = [link for link in gpu["links"] if link["link"] == number]
        if not known:
            gpu["links"].append({"link": number, "supported": {}})
        (known or gpu["links"])[-1]["supported"][name] = truth(value)
    return bool(name)


def _with(take: Take) -> Callable[[str], Reading]:
    def parse(text: str) -> Reading:
        notes = Notes()
        return notes.reading(_read(text, take, notes))

    return parse


def _likely(option: str, *patterns: Tuple[float, str]) -> Likely:
    line, asked = first_of(*patterns), first_of((0.8, r"nvidia-smi nvlink (?:%s)\b" % option))
    return Likely(lambda text: line(text) or asked(text[:400]), *line.needs, *asked.needs)


FORMATS = [
    Format(
        "nvidia-smi-nvlink-s",
        "state and speed of each NVLink",
        _likely(
            "-s|--status",
            (0.95, r"^\s{0,20}Link [0-9]{1,3}: (?:[0-9.]{1,9} GB/s|<inactive>)"),
            (0.95, r"(?i:^NVML: Unable to retrieve nvlink information)"),
            (0.9, "(?i:%s)" % _NO_NVLINK.pattern),
        ),
        parse_nvlink_status,
        {"speed": "GB/s"},
        aliases="(?:nvidia-smi-)?nvlink(?:-s|-status)?",
    ),
    Format(
        "nvidia-smi-nvlink-e",
        "error counters of each NVLink",
        _likely(
            "-e|--err",
            (0.95, r"^\s{0,20}Link [0-9]{1,3}: (?:[A-Za-z -]{1,60}Errors|[A-Z]\w{1,12} BER|Link recovery|Tx discards)"),
        ),
        parse_nvlink_errors,
        {"counters": "events since the driver was loaded", "fec": "codewords", "rates": "errors a bit"},
        aliases="nvlink-e|nvlink-errors",
    ),
    Format(
        "nvidia-smi-nvlink-R",
        "what each NVLink leads to",
        _likely("-R|--remote", (0.95, r"^\s{0,20}Link [0-9]{1,3}: Remote Device")),
        _with(_take_remote),
    ),
    Format(
        "nvidia-smi-nvlink-c",
        "what each NVLink can do",
        _likely("-c|--capabilities", (0.95, r"^\s{0,20}Link [0-9]{1,3}, [A-Za-z0-9 ]{1,60} supported:")),
        _with(_take_capability),
    ),
]

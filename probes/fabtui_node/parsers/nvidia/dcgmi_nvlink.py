"""``dcgmi nvlink --link-status``: a letter for each NVLink of each GPU and NVSwitch."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.nvidia.values import is_noise

_MOST = 1024
#: Meanings of the letters, as in the key below the table.
STATES = {"U": "up", "D": "down", "X": "disabled", "_": "unsupported"}

_HEAD = re.compile(r"(gpuId|physicalId|switchId|nvSwitchId|entityId|cpuId)\s{1,4}([0-9]{1,6}):(.{0,400})")
_LINKS = re.compile("[UDX_](?: [UDX_]){0,255}", re.ASCII)
_FRAME = re.compile(r"\+-|Key:|\|\s{1,8}NvLink Link Status")
_NOTHING = re.compile(r"No (?:GPUs|NvSwitch(?:es)?|NvLinks?)\b.{0,40}found", re.IGNORECASE)


def parse_link_status(text: str) -> Reading:
    """Return the links.

    Values: ``gpus`` and ``switches``: ``[{"id", "links": ["up", "down", "disabled" or "unsupported"]}]``; ``up``,
    ``down``, ``disabled``, ``unsupported``: how many links of GPUs are so, of ``links_total``.
    """
    notes = Notes()
    found: Dict[str, List[Dict[str, Any]]] = {"gpus": [], "switches": []}
    part = "gpus"
    last: Optional[Dict[str, Any]] = None
    for line in text.splitlines()[:20000]:
        word = line.strip()[:800]
        head = _HEAD.fullmatch(word)
        letters = head.group(3).strip() if head else word
        if word.rstrip(":").lower() in ("gpus", "nvswitches", "nvswitch"):
            part, last = ("gpus" if word.lower().startswith("gpu") else "switches"), None
        elif head and len(found[part]) < _MOST:
            last = {"id": int(head.group(2)), "links": []}
            found[part].append(last)
        elif last is None or not _LINKS.fullmatch(letters):
            if not (is_noise(line) or _FRAME.match(word) or _NOTHING.search(word)):
                notes.puzzled(line)
            continue
        if last is not None and _LINKS.fullmatch(letters):
            last["links"] += [STATES[letter] for letter in letters.split()]
    links = [link for gpu in found["gpus"] for link in gpu["links"]]
    for gpu in found["gpus"]:
        down = [str(at) for at, link in enumerate(gpu["links"]) if link == "down"]
        if down:
            notes.warn("GPU %d: links %s are down" % (gpu["id"], ", ".join(down)))
    for switch in found["switches"]:
        down = [str(at) for at, link in enumerate(switch["links"]) if link == "down"]
        if down:
            notes.warn("NVSwitch %d: links %s are down" % (switch["id"], ", ".join(down)))
    counts = {state: links.count(state) for state in STATES.values()}
    return notes.reading(dict(found, **counts, links_total=len(links)))


def _likely(text: str) -> float:
    if re.search(r"^\|\s{1,8}NvLink Link Status\s{1,8}\|", text, re.MULTILINE):
        return 0.97
    return 0.9 if re.search(r"^\s{1,16}gpuId [0-9]{1,4}:", text, re.MULTILINE) else 0.0


FORMATS = [
    Format(
        "dcgmi-nvlink",
        "whether NVLinks are up, by DCGM",
        ("dcgmi", "nvlink", "--link-status"),
        {},
        _likely,
        parse_link_status,
    )
]

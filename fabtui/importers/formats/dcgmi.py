"""``dcgmi diag -r N``: a table of tests and results, or JSON (``-j``), and ``dcgmi nvlink --link-status``."""

from __future__ import annotations

import re
from typing import Any

from fabtui_node.parsers.base import Format, Notes, Reading, first_of
from fabtui_node.parsers.lines import json_list, json_object, json_value
from fabtui_node.parsers.nvidia.values import is_noise, snake

# dcgmi diag in the forms of DCGM 1 to 4, with long texts cut into lines.
_MOST = 2000
_SECTION = re.compile(r"[|+]-{3,40}\s{1,6}([A-Za-z][A-Za-z /]{1,40}?)\s{1,6}-{3,40}\+?-{0,100}[|+]?")
_RULE = re.compile(r"[+|][-=+]{3,200}[+|]?")
_RESULT = re.compile(r"(Pass|Fail|Skip|Warn|Warning|Not Run|Error)(?: - (.{1,200}))?", re.IGNORECASE)
_ENTITY = re.compile(
    r"(GPU|CPU|Switch|Core)\s{0,2}([0-9]{1,4}): (Pass|Fail|Skip|Warn|Warning|Not Run|Error)", re.IGNORECASE
)
_LISTED = re.compile(r"(?:GPUs?|CPUs?|Switch(?:es)?): ([0-9][0-9, ]{0,400})")
_MESSAGE = re.compile(r"(Warning|Error|Info|Recommendation)s?(?::? .{0,30})?", re.IGNORECASE)
_GPU = re.compile(r"\bGPU ([0-9]{1,4})")
_FACTS = ("dcgm_version", "driver_version_detected", "gpu_device_ids_detected", "eud_test_version", "hostname")
#: What the JSON is called by versions up to 3, and later.
_JSON = ("DCGM GPU Diagnostic", "DCGM Diagnostic")
_HEADER = ("diagnostic", "result")

Test = dict[str, Any]


def _piece(cell: str) -> str:
    """Return a line's part of a text: a blank comes before it, and what is behind it is there to fill the column."""
    return cell[1:-2] if len(cell) > 3 and cell.endswith("  ") else cell[1:].rstrip()


class _Table:
    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.section: str | None = None
        self.tests: list[Test] = []
        self.messages: list[dict[str, Any]] = []
        self.facts: dict[str, str] = {}
        #: The row that continues: its label, and its text, whose pieces follow in the next lines.
        self._label: str | None = None
        self._pieces: list[str] = []

    def take(self, line: str) -> None:
        word = line.strip()
        section = _SECTION.fullmatch(word[:200])
        if section:
            self.close()
            self.section = section[1]
        elif _RULE.fullmatch(word[:250]):
            self.close()
        elif word.startswith("|"):
            # The last line may have come without its bar.
            cells = word[1:].split("|", 1)
            label, rest = cells[0].strip(), cells[1] if len(cells) > 1 else ""
            self._row(label, rest[: rest.rfind("|")] if "|" in rest else rest, line)
        elif not is_noise(line) and not word.startswith("Successfully ran diagnostic"):
            self.notes.puzzled(line)

    def _row(self, label: str, cell: str, line: str) -> None:
        if (snake(label), snake(cell)) == _HEADER:
            return
        known, short = label or self._label, cell.strip()
        result = bool(_RESULT.fullmatch(short[:300]) or _ENTITY.fullmatch(short[:60]))
        if known is None:
            self.notes.puzzled(line)
        elif label or (result and not _MESSAGE.fullmatch(known)):
            self.close()
            self._label, self._pieces = known, [_piece(cell)]
        elif len(self._pieces) < _MOST:
            self._pieces.append(_piece(cell))

    def close(self) -> None:
        """Put the row that has ended where it belongs."""
        label, self._label = self._label, None
        if label is None or len(self.tests) + len(self.messages) >= _MOST:
            return
        # Pieces are as wide as the column lets them be and are cut in the middle of words: nothing goes in between.
        text, name = "".join(self._pieces).strip(), snake(label)
        result, entity = _RESULT.fullmatch(text[:400]), _ENTITY.fullmatch(text[:60])
        if _MESSAGE.fullmatch(label) and not result:
            self._message(label, text)
        elif entity:
            self._test(label)["entities"].append([entity[1], int(entity[2]), entity[3].capitalize()])
        elif result:
            self._whole(label, result)
        elif name in _FACTS or self.section == "Metadata":
            self.facts[name] = text
        else:
            self.notes.puzzled(f"{label}: {text}")

    def _test(self, label: str) -> Test:
        for known in reversed(self.tests):
            if (known["test"], known["section"]) == (label, self.section):
                return known
        test: Test = {"section": self.section, "test": label, "result": None, "entities": []}
        self.tests.append(test)
        return test

    def take_json(self, value: dict[str, Any]) -> None:
        """Read what ``-j`` prints: DCGM up to 3 names the GPUs of a result, later versions an entity."""
        diag = next((found for name in _JSON if (found := json_object(value, name))), {})
        for text, name in (("version", "dcgm_version"), ("Driver Version Detected", "driver_version_detected")):
            fact = diag.get(text) or json_object(value, "metadata").get(text)
            self.facts.update({name: fact[:100]} if isinstance(fact, str) else {})
        for category in json_list(diag.get("test_categories"))[:64]:
            self.section = str(json_object(category).get("category") or "")[:40] or None
            for test in json_list(json_object(category).get("tests"))[:200]:
                for result in json_list(json_object(test).get("results"))[:1024]:
                    self._json_result(str(json_object(test).get("name"))[:80], json_object(result))

    def _json_result(self, label: str, result: dict[str, Any]) -> None:
        status = _RESULT.fullmatch(str(result.get("status"))[:100])
        if status is None or len(self.tests) + len(self.messages) >= _MOST:
            self.notes.puzzled(f"{label}: {str(result.get('status'))[:100]}")
            return
        listed = result.get("gpu_ids", result.get("gpu_id", result.get("entity_id", "")))
        numbers = re.findall("[0-9]{1,4}", str(listed)[:4000], re.ASCII)[:1024]
        group = str(result.get("entity_group") or "GPU")[:20]
        self._worst(label, status[1].capitalize())
        self._test(label)["entities"] += [[group, int(number), status[1].capitalize()] for number in numbers]
        where = f"{group} {', '.join(numbers)}: " if numbers else ""
        for kind in ("warnings", "errors", "info"):
            texts = result.get(kind)
            for one in json_list(texts) if isinstance(texts, list) else [texts] * bool(texts):
                text = json_object(one).get("warning", one) if isinstance(one, dict) else one
                self._message(kind, str(text)[:4000] if _GPU.search(str(text)[:4000]) else f"{where}{str(text)[:4000]}")

    def _whole(self, label: str, result: Any) -> None:
        test = self._test(label)
        word, which = result[1].capitalize(), (result[2] or "").strip()
        listed = _LISTED.fullmatch(which)
        if listed:
            for number in re.findall("[0-9]{1,4}", listed[1], re.ASCII)[:1024]:
                test["entities"].append(["GPU", int(number), word])
        self._worst(label, word)
        if which and not listed:
            test["of"] = which

    def _worst(self, label: str, word: str) -> None:
        test = self._test(label)
        worst = ("Fail", "Error", "Warn", "Warning", "Pass", "Skip", "Not run")
        if test["result"] is None or worst.index(word) < worst.index(test["result"]):
            test["result"] = word

    def _message(self, label: str, text: str) -> None:
        gpus = sorted({int(number) for number in _GPU.findall(label + " " + text[:20000])})
        test = self.tests[-1]["test"] if self.tests and self.tests[-1]["section"] == self.section else None
        kind = label.split(":")[0].split()[0].rstrip("s").lower()
        self.messages.append({"kind": kind, "section": self.section, "test": test, "gpus": gpus, "text": text[:8000]})


def parse_diag(text: str) -> Reading:
    """Return the results of a diagnostic run.

    Values: ``dcgm``, ``driver``, ``devices``; ``tests``: ``[{"section", "test", "result" (the worst of all), "of"
    (``All``), "entities": [["GPU", 3, "Fail"]]}]``; ``messages``: ``[{"kind": "warning"|"error"|"info", "section",
    "test", "gpus", "text"}]`` with the lines of a text joined; ``failed``: the names of tests that failed.
    """
    notes = Notes()
    table = _Table(notes)
    if value := json_object(json_value(text)) if '"test_categories"' in text else {}:
        table.take_json(value)
    else:
        for line in text.splitlines()[:20000]:
            table.take(line[:2000])
        table.close()
    bad = {"Fail", "Error"}
    failed = [
        test["test"] for test in table.tests if {test["result"], *(entity[2] for entity in test["entities"])} & bad
    ]
    for message in table.messages:
        if message["kind"] != "info":
            notes.warn(f"{message['test'] or message['section'] or message['kind']}: {message['text']}")
    for name in failed:
        notes.warn(f"{name} failed")
    if not table.tests and not table.messages and text.strip():
        notes.warn("no result in this text")
    values = {
        "dcgm": table.facts.get("dcgm_version"),
        "driver": table.facts.get("driver_version_detected"),
        "devices": table.facts.get("gpu_device_ids_detected"),
        "tests": table.tests,
        "messages": table.messages,
        "failed": failed,
    }
    return notes.reading(values)


# dcgmi nvlink --link-status.
_MOST_DEVICES = 1024
#: Meanings of the letters, as in the key below the table.
STATES = {"U": "up", "D": "down", "X": "disabled", "_": "unsupported"}

_LINKS_OF = re.compile(r"(gpuId|physicalId|switchId|nvSwitchId|entityId|cpuId)\s{1,4}([0-9]{1,6}):(.{0,400})")
_LINKS = re.compile("[UDX_](?: [UDX_]){0,255}", re.ASCII)
_FRAME = re.compile(r"\+-|Key:|\|\s{1,8}NvLink Link Status")
_NO_LINKS = re.compile(r"No (?:GPUs|NvSwitch(?:es)?|NvLinks?)\b.{0,40}found", re.IGNORECASE)


def parse_link_status(text: str) -> Reading:
    """Return the links.

    Values: ``gpus`` and ``switches``: ``[{"id", "links": ["up", "down", "disabled" or "unsupported"]}]``; ``up``,
    ``down``, ``disabled``, ``unsupported``: how many links of GPUs are so, of ``links_total``.
    """
    notes = Notes()
    found: dict[str, list[dict[str, Any]]] = {"gpus": [], "switches": []}
    part = "gpus"
    last: dict[str, Any] | None = None
    for line in text.splitlines()[:20000]:
        word = line.strip()[:800]
        head = _LINKS_OF.fullmatch(word)
        letters = head[3].strip() if head else word
        if word.rstrip(":").lower() in ("gpus", "nvswitches", "nvswitch"):
            part, last = ("gpus" if word.lower().startswith("gpu") else "switches"), None
        elif head and len(found[part]) < _MOST_DEVICES:
            last = {"id": int(head[2]), "links": []}
            found[part].append(last)
        elif last is None or not _LINKS.fullmatch(letters):
            if not (is_noise(line) or _FRAME.match(word) or _NO_LINKS.search(word)):
                notes.puzzled(line)
            continue
        if last is not None and _LINKS.fullmatch(letters):
            last["links"] += [STATES[letter] for letter in letters.split()]
    links = [link for gpu in found["gpus"] for link in gpu["links"]]
    # On cards, links without a bridge are down by design: on all GPUs alike.
    alike = len({device["links"].count("down") for device in found["gpus"]}) == 1
    for part, title in (("gpus", "GPU"), ("switches", "NVSwitch")):
        for device in found[part]:
            down = [str(at) for at, link in enumerate(device["links"]) if link == "down"]
            if down and not (alike and part == "gpus"):
                notes.warn(f"{title} {device['id']}: links {', '.join(down)} are down")
    counts = {state: links.count(state) for state in STATES.values()}
    return notes.reading(dict(found, **counts, links_total=len(links)))


def _link_facts(values: dict[str, Any]) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the links as the probe ``nvlink`` has them."""
    states = {"up": "active", "down": "inactive"}
    gpus = [
        {
            "index": gpu["id"],
            "links": [
                {"link": at, "state": states.get(link, "unknown")}
                for at, link in enumerate(gpu["links"])
                if link != "unsupported"
            ],
        }
        for gpu in values["gpus"]
    ]
    return {"": {"nvlink": {"gpus": gpus}}}


FORMATS = [
    Format(
        "dcgmi-diag",
        "results of DCGM's diagnostics",
        first_of(
            (0.97, r"^\| (?:DCGM Version|Diagnostic) {1,40}\||ran diagnostic for group"),
            (0.8, r"^Error: .{0,60}(?:host engine|establish a connection to the specified host)"),
            (0.95, r'"DCGM (?:GPU )?Diagnostic"\s{0,20}:'),
            (0.85, r"^\| (?:[A-Z][A-Za-z ]{1,24}|[a-z_]{3,24}) {1,40}\| (?:Pass|Fail|Skip|Warn)\b"),
        ),
        parse_diag,
    ),
    Format(
        "dcgmi-nvlink",
        "whether NVLinks are up, by DCGM",
        first_of((0.97, r"^\|\s{1,8}NvLink Link Status\s{1,8}\|"), (0.9, r"^\s{1,16}gpuId [0-9]{1,4}:")),
        parse_link_status,
        facts=_link_facts,
    ),
]

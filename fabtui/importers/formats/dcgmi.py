"""``dcgmi diag -r N``: a table of tests and results, or JSON (``-j``), and ``dcgmi nvlink --link-status``."""

from __future__ import annotations

import re
from typing import Any

from fabtui.importers.tables import Tables, Values, kinds
from fabtui_node.parsers.base import Format, Reading, first_of
from fabtui_node.parsers.lines import json_list, json_object, json_value
from fabtui_node.parsers.nvidia.values import is_noise, snake

# dcgmi diag in the forms of DCGM 1 to 4, with long texts cut into lines.
_MOST = 2000
_DIAG = kinds(
    r"""
    headed  [|+]-{3,40}\s{1,6}(?P<section>[A-Za-z][A-Za-z /]{1,40}?)\s{1,6}-{3,40}\+?-{0,100}[|+]?$
    rule    [+|][-=+]{3,200}[+|]?$
    row     \|(?P<label>[^|]*)(?:\|(?P<cell>.*?))?(?:\|[^|]*)?$
    other   \S
    """
)
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
_DIAG_LIKELY = first_of(
    (0.97, r"^\| (?:DCGM Version|Diagnostic) {1,40}\||ran diagnostic for group"),
    (0.8, r"^Error: .{0,60}(?:host engine|establish a connection to the specified host)"),
    (0.95, r'"DCGM (?:GPU )?Diagnostic"\s{0,20}:'),
    (0.85, r"^\| (?:[A-Z][A-Za-z ]{1,24}|[a-z_]{3,24}) {1,40}\| (?:Pass|Fail|Skip|Warn)\b"),
)
_LINKS = first_of((0.97, r"^\|\s{1,8}NvLink Link Status\s{1,8}\|"), (0.9, r"^\s{1,16}gpuId [0-9]{1,4}:"))


def _piece(cell: str) -> str:
    """Return a line's part of a text: a blank comes before it, and what is behind it is there to fill the column."""
    return cell[1:-2] if len(cell) > 3 and cell.endswith("  ") else cell[1:].rstrip()


class _Diag(Tables, lines=_DIAG):
    """Reads the results of a diagnostic run.

    Values: ``dcgm``, ``driver``, ``devices``; ``tests``: ``[{"section", "test", "result" (the worst of all), "of"
    (``All``), "entities": [["GPU", 3, "Fail"]]}]``; ``messages``: ``[{"kind": "warning"|"error"|"info", "section",
    "test", "gpus", "text"}]`` with the lines of a text joined; ``failed``: the names of tests that failed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.section: str | None = None
        self.tests: list[Values] = []
        self.messages: list[Values] = []
        #: The row that continues: its label, and its text, whose pieces follow in the next lines.
        self._label: str | None = None
        self._pieces: list[str] = []

    def headed(self, values: Values, line: str) -> None:
        self.close()
        self.section = values["section"]

    def rule(self, values: Values, line: str) -> None:
        self.close()

    def other(self, values: Values, line: str) -> None:
        if not is_noise(line) and not line.strip().startswith("Successfully ran diagnostic"):
            self.notes.puzzled(line)

    def row(self, values: Values, line: str) -> bool:
        label, cell = values["label"].strip(), values["cell"] or ""
        known, short = label or self._label, cell.strip()
        result = bool(_RESULT.fullmatch(short[:300]) or _ENTITY.fullmatch(short[:60]))
        if known is None:
            self.notes.puzzled(line)
        elif (snake(label), snake(cell)) == _HEADER:
            pass
        elif label or (result and not _MESSAGE.fullmatch(known)):
            self.close()
            self._label, self._pieces = known, [_piece(cell)]
        elif len(self._pieces) < _MOST:
            self._pieces.append(_piece(cell))
        return True

    def close(self) -> None:
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

    def _test(self, label: str) -> Values:
        for known in reversed(self.tests):
            if (known["test"], known["section"]) == (label, self.section):
                return known
        test: Values = {"section": self.section, "test": label, "result": None, "entities": []}
        self.tests.append(test)
        return test

    def take_json(self, value: Values) -> None:
        """Read what ``-j`` prints: DCGM up to 3 names the GPUs of a result, later versions an entity."""
        diag = next((run for name in _JSON if (run := json_object(value, name))), {})
        for text, name in (("version", "dcgm_version"), ("Driver Version Detected", "driver_version_detected")):
            fact = diag.get(text) or json_object(value, "metadata").get(text)
            self.facts.update({name: fact[:100]} if isinstance(fact, str) else {})
        for category in json_list(diag.get("test_categories"))[:64]:
            self.section = str(json_object(category).get("category") or "")[:40] or None
            for test in json_list(json_object(category).get("tests"))[:200]:
                for result in json_list(json_object(test).get("results"))[:1024]:
                    self._json_result(str(json_object(test).get("name"))[:80], json_object(result))

    def _json_result(self, label: str, result: Values) -> None:
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
            for entry in json_list(texts) if isinstance(texts, list) else [texts] * bool(texts):
                text = entry.get("warning", entry) if isinstance(entry, dict) else entry
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

    def reading(self) -> Reading:
        self.close()
        bad = {"Fail", "Error"}
        failed = [test["test"] for test in self.tests if {test["result"], *(end[2] for end in test["entities"])} & bad]
        for message in self.messages:
            if message["kind"] != "info":
                self.notes.warn(f"{message['test'] or message['section'] or message['kind']}: {message['text']}")
        for name in failed:
            self.notes.warn(f"{name} failed")
        if not self.tests and not self.messages:
            self.notes.warn("no result in this text")
        names = {"dcgm": "dcgm_version", "driver": "driver_version_detected", "devices": "gpu_device_ids_detected"}
        values = {ours: self.facts.get(name) for ours, name in names.items()}
        return self.notes.reading({**values, "tests": self.tests, "messages": self.messages, "failed": failed})


def _parse_diag(text: str) -> Reading:
    value = json_object(json_value(text)) if '"test_categories"' in text else {}
    if not value:
        return _Diag.parse(text)
    reader = _Diag()
    reader.take_json(value)
    return reader.reading()


# dcgmi nvlink --link-status.
_MOST_DEVICES = 1024
#: Meanings of the letters, as in the key below the table.
_STATES = {"U": "up", "D": "down", "X": "disabled", "_": "unsupported"}
_LINK_STATUS = kinds(
    r"""
    part    (?i:(?P<part>gpu|nvswitch)(?:s|es)?:?)$
    device  (?:gpuId|physicalId|switchId|nvSwitchId|entityId|cpuId)\s{1,4}<id:int>:\s*<links:links>?$
    more    <links:links>$
    skip    \+-|Key:|\|\s{1,8}NvLink Link Status|.*No (?:GPUs|NvSwitch(?:es)?|NvLinks?)\b.{0,40}found
    other   \S
    """,
    links="[UDX_](?: [UDX_]){0,255}",
)


class _LinkStatus(Tables, lines=_LINK_STATUS, facts={"gpus": [], "switches": []}):
    """Reads the links.

    Values: ``gpus`` and ``switches``: ``[{"id", "links": ["up", "down", "disabled" or "unsupported"]}]``; ``up``,
    ``down``, ``disabled``, ``unsupported``: how many links of GPUs are so, of ``links_total``.
    """

    now = "gpus"

    def part(self, values: Values, line: str) -> None:
        self.now = "gpus" if values["part"].lower() == "gpu" else "switches"

    def device(self, values: Values, line: str) -> None:
        if len(self.facts[self.now]) < _MOST_DEVICES:
            self.facts[self.now].append({"id": values["id"], "links": []})
        self.more(values, line)

    def more(self, values: Values, line: str) -> bool:
        devices = self.facts[self.now]
        if devices:
            devices[-1]["links"] += [_STATES[letter] for letter in (values["links"] or "").split()]
        return bool(devices)

    def other(self, values: Values, line: str) -> None:
        if not is_noise(line):
            self.notes.puzzled(line)

    def reading(self) -> Reading:
        links = [link for gpu in self.facts["gpus"] for link in gpu["links"]]
        # On cards, links without a bridge are down by design: on all GPUs alike.
        alike = len({device["links"].count("down") for device in self.facts["gpus"]}) == 1
        for part, title in (("gpus", "GPU"), ("switches", "NVSwitch")):
            for device in self.facts[part]:
                down = [str(at) for at, link in enumerate(device["links"]) if link == "down"]
                if down and not (alike and part == "gpus"):
                    self.notes.warn(f"{title} {device['id']}: links {', '.join(down)} are down")
        counts = {state: links.count(state) for state in _STATES.values()}
        return self.notes.reading({**self.facts, **counts, "links_total": len(links)})


def _link_facts(values: Values) -> dict[str, dict[str, Values]]:
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
    Format("dcgmi-diag", "results of DCGM's diagnostics", _DIAG_LIKELY, _parse_diag),
    Format("dcgmi-nvlink", "whether NVLinks are up, by DCGM", _LINKS, _LinkStatus.parse, facts=_link_facts),
]

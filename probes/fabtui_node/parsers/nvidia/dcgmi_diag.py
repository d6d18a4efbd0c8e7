"""``dcgmi diag -r N``: a table of tests and results, in the forms of DCGM 1 to 4, with long texts cut into lines."""

from __future__ import annotations

import re
from typing import Any, Dict, List, Optional

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.nvidia.values import is_noise, snake

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
_HEADER = ("diagnostic", "result")

Test = Dict[str, Any]


class _Line:
    """A row of the table: its label and its text, whose pieces follow in the next lines."""

    def __init__(self, label: str) -> None:
        self.label = label
        self.pieces: List[str] = []

    def text(self) -> str:
        # Pieces are as wide as the column lets them be and are cut in the middle of words, so nothing goes in between.
        return "".join(self.pieces).strip()


def _piece(cell: str) -> str:
    """Return a line's part of a text: a blank stands before it, and what is behind it is there to fill the column."""
    return cell[1:-2] if len(cell) > 3 and cell.endswith("  ") else cell[1:].rstrip()


class _Table:
    def __init__(self, notes: Notes) -> None:
        self.notes = notes
        self.section: Optional[str] = None
        self.tests: List[Test] = []
        self.messages: List[Dict[str, Any]] = []
        self.facts: Dict[str, str] = {}
        self._line: Optional[_Line] = None

    def take(self, line: str) -> None:
        word = line.strip()
        section = _SECTION.fullmatch(word[:200])
        if section:
            self.close()
            self.section = section.group(1)
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
        if label:
            self.close()
            self._line = _Line(label)
            self._line.pieces.append(_piece(cell))
        elif self._line is None:
            self.notes.puzzled(line)
        elif self._result(cell.strip()) and not _MESSAGE.fullmatch(self._line.label):
            label = self._line.label
            self.close()
            self._line = _Line(label)
            self._line.pieces.append(_piece(cell))
        elif len(self._line.pieces) < _MOST:
            self._line.pieces.append(_piece(cell))

    @staticmethod
    def _result(text: str) -> bool:
        return bool(_RESULT.fullmatch(text[:300]) or _ENTITY.fullmatch(text[:60]))

    def close(self) -> None:
        """Put the row that has ended where it belongs."""
        line, self._line = self._line, None
        if line is None or len(self.tests) + len(self.messages) >= _MOST:
            return
        text, name = line.text(), snake(line.label)
        result, entity = _RESULT.fullmatch(text[:400]), _ENTITY.fullmatch(text[:60])
        if _MESSAGE.fullmatch(line.label) and not result:
            self._message(line.label, text)
        elif entity:
            test = self._test(line.label)
            test["entities"].append([entity.group(1), int(entity.group(2)), entity.group(3).capitalize()])
        elif result:
            self._whole(line.label, result)
        elif name in _FACTS or self.section == "Metadata":
            self.facts[name] = text
        else:
            self.notes.puzzled("%s: %s" % (line.label, text))

    def _test(self, label: str) -> Test:
        for known in reversed(self.tests):
            if (known["test"], known["section"]) == (label, self.section):
                return known
        test: Test = {"section": self.section, "test": label, "result": None, "entities": []}
        self.tests.append(test)
        return test

    def _whole(self, label: str, result: Any) -> None:
        test = self._test(label)
        word, which = result.group(1).capitalize(), (result.group(2) or "").strip()
        listed = _LISTED.fullmatch(which)
        if listed:
            for number in re.findall("[0-9]{1,4}", listed.group(1), re.ASCII)[:1024]:
                test["entities"].append(["GPU", int(number), word])
        worst = ("Fail", "Error", "Warn", "Warning", "Pass", "Skip", "Not run")
        if test["result"] is None or worst.index(word) < worst.index(test["result"]):
            test["result"] = word
        if which and not listed:
            test["of"] = which

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
    for line in text.splitlines()[:20000]:
        table.take(line[:2000])
    table.close()
    failed = [test["test"] for test in table.tests if test["result"] in ("Fail", "Error") or _bad(test)]
    for message in table.messages:
        if message["kind"] != "info":
            notes.warn("%s: %s" % (message["test"] or message["section"] or message["kind"], message["text"]))
    for name in failed:
        notes.warn("%s failed" % name)
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


def _bad(test: Dict[str, Any]) -> bool:
    return any(entity[2] in ("Fail", "Error") for entity in test["entities"])


def _likely(text: str) -> float:
    if re.search(r"^\| (?:DCGM Version|Diagnostic) {1,40}\|", text, re.MULTILINE) or "ran diagnostic for group" in text:
        return 0.97
    row = r"^\| (?:[A-Z][A-Za-z ]{1,24}|[a-z_]{3,24}) {1,40}\| (?:Pass|Fail|Skip|Warn)\b"
    return 0.85 if re.search(row, text, re.MULTILINE) else 0.0


FORMATS = [Format("dcgmi-diag", "results of DCGM's diagnostics", ("dcgmi", "diag", "-r", "1"), {}, _likely, parse_diag)]

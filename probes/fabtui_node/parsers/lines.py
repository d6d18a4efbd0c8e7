"""Lines of a log without labels of launchers and escape sequences; finite numbers, sizes and JSON."""

from __future__ import annotations

import json
import math
import re
from typing import Any, List, Tuple

#: A line longer than this is cut: no tool read here prints one.
LONGEST = 20_000
#: Maximum number of values of a JSON text, each of which takes some 100 bytes.
MOST_VALUES = 2_000_000

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]{0,2000}(?:\x07|\x1b\\)|\([A-Z]|[@-Z\\^_])")
# Labels of mpirun --tag-output, torchrun, Ray and container logs.
_LABEL = re.compile(
    r"(?:\[\d{1,6},\d{1,6}\]<(?:std(?:out|err)|\.\.\.)>:?|\[[^\]\s]{1,80}:\d{1,9}\]<std(?:out|err)>:?"
    r"|\[default\d{1,6}\]:|\([\w.:]{1,60} pid=\d{1,9}(?:, ip=[\d.:a-f]{1,45})?\)"
    r"|\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:?\d\d) (?:std(?:out|err) [FP] )?)\s?",
    re.ASCII,
)
#: The prompt of a shell, or a mark of quoted text.
_PROMPT = re.compile(r"```|[$#>] |\[?[\w.-]{1,60}@[\w.-]{1,80}[: ]", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d{1,30}(?:\.\d{0,30})?|\.\d{1,30})(?:[eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)

_SIZE = re.compile(r"(\d{1,12}(?:\.\d{1,6})?)\s*([KMGT]?)(i?)B", re.ASCII)


def plain_lines(text: str) -> list[str]:
    """Return the lines of a log without escape sequences and launchers' labels (``[1,0]<stdout>:``).

    A carriage return within a line restarts it, as on a terminal.
    """
    lines = []
    for line in without_escapes(text).split("\n"):
        line = line[:LONGEST].rstrip("\r")
        if "\r" in line:
            line = line.rpartition("\r")[2]
        lines.append(unlabelled(line))
    return lines


def without_escapes(text: str) -> str:
    """Return a text without escape sequences."""
    return _ESCAPES.sub("", text) if "\x1b" in text else text


def unlabelled(line: str) -> str:
    """Return a line without a launcher's label; the blanks before a label go with it."""
    start = len(line) - len(line.lstrip())
    match = _LABEL.match(line, start)
    return line[match.end() :] if match else line


def is_prompt(line: str) -> bool:
    """Return True if a line begins with the prompt of a shell or a mark of quoted text: a record ends before it."""
    return _PROMPT.match(line) is not None


def number(text: str) -> float | None:
    """Return a finite number, or None for everything else (``N/A``, ``inf``, ``1e999``)."""
    return _finite(text) if _NUMBER.fullmatch(text) else None


def bytes_text(count: float | None) -> str:
    """Return a number of bytes, for example ``256 MiB``; a negative one stands for no limit, "" for None."""
    if count is None:
        return ""
    if count < 0:
        return "unlimited"
    for power, unit in ((40, "TiB"), (30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.4g} {unit}"
    return f"{count:.4g} B"


def whole(text: str) -> int | None:
    """Return an integer of at most 18 digits, or None."""
    return int(text) if _WHOLE.fullmatch(text) else None


def json_value(text: str) -> Any:
    """Return the first JSON value in a text, ignoring the rest, or None.

    NaN and numbers beyond a double, which JSON does not have, are None in it. A text with too many values has none.
    """
    starts = [at for at in (text.find("{"), text.find("[")) if at >= 0]
    if not starts or not _is_bounded(text):
        return None
    try:
        value, _ = _DECODER.raw_decode(text, min(starts))
    except (ValueError, RecursionError):
        return None
    return value


def json_objects(text: str, most: int) -> tuple[list[dict[str, Any]], int]:
    """Return the objects that begin at the starts of lines, and how many of these are cut off or damaged.

    An object may span several lines.
    """
    objects: list[dict[str, Any]] = []
    broken = 0
    at = text.find("{") if _is_bounded(text) else -1
    while at >= 0 and len(objects) < most:
        try:
            value, end = _DECODER.raw_decode(text, at)
        except (ValueError, RecursionError):
            broken += 1
            end = at + 1
        else:
            objects.append(value)
        # The rest of a broken object has braces too; only those at the start of a line may begin the next one.
        at = text.find("{", end) if end > at + 1 else text.find("\n{", end) + 1 or -1
    return objects, broken


def _is_bounded(text: str) -> bool:
    return len(text) < MOST_VALUES or sum(map(text.count, "[{,")) <= MOST_VALUES


#: Names under which stores of logs keep the line of a record.
_MESSAGES = ("log", "message", "MESSAGE", "msg", "line", "_raw", "textPayload", "Message", "@message", "body")


def log_of_json(text: str) -> str:
    """Return the lines of a log that its store wrote as one JSON value, in order of time; "" for any other text."""
    if text.count("\n") > 1 or text.lstrip()[:1] not in ("{", "["):
        return ""
    lines: List[Tuple[str, str]] = []
    parts: List[Any] = [json_value(text)]
    while parts and len(lines) < 1_000_000:
        part = parts.pop()
        if isinstance(part, dict):
            named = [part[name] for name in _MESSAGES if isinstance(part.get(name), str)]
            lines += [(str(part.get("timestamp") or part.get("time") or ""), named[0])] if named else []
            parts += [value for value in reversed(list(part.values())) if isinstance(value, (dict, list))]
        elif isinstance(part, list) and len(part) == 2 and all(isinstance(value, str) for value in part):
            lines.append((part[0], part[1]))
        elif isinstance(part, list):
            parts += reversed(part)
    return (
        "".join(line.rstrip("\n") + "\n" for _, line in sorted(lines, key=lambda pair: pair[0]))
        if len(lines) > 1
        else ""
    )


def json_number(value: Any) -> float | None:
    """Return a JSON value as a number, None for any other value."""
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def json_whole(value: Any) -> int | None:
    """Return a JSON value as a number that counts or names something; None for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63 else None


def json_text(value: Any, longest: int | None = None) -> str | None:
    """Return a JSON value as a text, cut to a length; None for any other value."""
    return value[:longest] if isinstance(value, str) else None


def json_object(value: Any, *names: str) -> dict[str, Any]:
    """Return the object at a path of names in a JSON value, or an empty one."""
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def json_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


_DECODER = json.JSONDecoder(
    parse_constant=lambda _: None, parse_float=_finite, parse_int=lambda text: int(text) if len(text) <= 19 else None
)


def size(text: str) -> int | None:
    """Return a size in bytes: ``32KiB`` is 32768, ``4.0GB`` is 4e9; None for what is not a size."""
    match = _SIZE.fullmatch(text.strip())
    if not match:
        return None
    base = 1024 if match[3] else 1000
    power = " KMGT".index(match[2] or " ")
    return round(float(match[1]) * float(base**power))

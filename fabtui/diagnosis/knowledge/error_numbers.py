"""Numbers of errors of CUDA, Linux, RDMA completions and NCCL, from ``error_numbers.toml``."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from fabtui.diagnosis.knowledge.pattern_set import PatternSet
from fabtui.diagnosis.knowledge.toml_data import load


class _Table(NamedTuple):
    title: str  #: What its numbers are called in a sentence.
    spelling: re.Pattern[str]  #: A number in a line; each alternative has one group.
    words: re.Pattern[str]  #: A line in which the words of the library count, too; its names always do.


_IGNORE = re.ASCII | re.IGNORECASE
#: In the order in which a line is searched.
_TABLES = {
    "completion": _Table(
        "RDMA completion status",
        re.compile(
            r"\bcompletion .{0,120}?(?:with error|\bstatus) (\d{1,2})\b"
            r"|\bfailed status[- ](?:[^()\n]{1,60}\()?(\d{1,2})\b"
            r"|(?<!exit.)\bstatus ?= ?(?:\(?[A-Z_]{1,40}[()])?(\d{1,2})\b|\bIBV_WC_[A-Z_]{1,40}[() ]{1,2}(\d{1,2})\b"
            r"|\bwc[ _.](?:status|error) (\d{1,2})\b",
            _IGNORE,
        ),
        re.compile(r"completion|\bwc\b|failed status", re.I),
    ),
    "cuda": _Table(
        "CUDA error",
        re.compile(
            r"\b(?:cuda|hip)(?: driver| runtime)?[ _](?:failure|error|err)(?: code)?[ :=(]{0,3}(\d{1,3})\b"
            r"|\bIPC handle ?:? ?(\d{1,3})\b",
            _IGNORE,
        ),
        re.compile(r"(?i:cuda|\bhip)|\bcu[A-Z]|peer access|present state|not yet initialized|launch|ECC error"),
    ),
    "errno": _Table(
        "errno",
        re.compile(
            r"\b(?:errno|rc)[ :=(\]]{0,3}-?(\d{1,3})\b|\b(?:err|code|ret)[ :=]{0,3}-(\d{1,3})\b"
            r"|\berror[ =:]{1,2}-?(\d{1,3})\b|\bfailed with (?:error )?-?(\d{1,3})\b",
            _IGNORE,
        ),
        re.compile(""),
    ),
    "nccl": _Table(
        "NCCL result",
        re.compile(r"\b[NR]CCL (?:error|result)[ :=]{0,3}(\d)\b|\S\.\w{1,4}:\d{1,7} -> (\d)\b", _IGNORE),
        re.compile("(?!)"),
    ),
}
_VENDOR = re.compile(r"\b(?:vendor[ _]err(?:or)?|syndrome?)[ =:(]{0,3}(0x[0-9a-f]{1,4}|\d{1,4})\b", _IGNORE)


class ErrorNumber(NamedTuple):
    """A number of an error."""

    table: str  #: ``cuda``, ``errno``, ``completion`` or ``nccl``.
    number: int
    name: str  #: Its name in the headers of the library.
    text: str  #: What it means, a clause.

    @property
    def advice(self) -> str:
        """The first step that the number shows in any log, or ""."""
        rows = load("error_numbers")["advice"]
        return next((row["next"] for row in rows if row["table"] == self.table and self.number in row["numbers"]), "")

    @property
    def sentence(self) -> str:
        """Number and meaning: ``CUDA error 401 (operation not permitted in the present state)``."""
        return f"{_TABLES[self.table].title} {self.number} ({self.text})"


@functools.cache
def error_numbers(table: str) -> Mapping[int, ErrorNumber]:
    """Return a table of numbers: ``cuda``, ``errno``, ``completion`` or ``nccl``."""
    rows = load("error_numbers")[table].items()
    return {int(key): ErrorNumber(table, int(key), row[0].split()[0], row[1]) for key, row in rows}


def status_of_vendor_error(code: int) -> ErrorNumber | None:
    """Return the completion status that comes with a vendor error (syndrome) of mlx5 NICs, or None."""
    status = load("error_numbers")["vendor"].get(str(code))
    return None if status is None else error_numbers("completion")[status]


@functools.cache
def _patterns() -> PatternSet[str]:
    own = {table: [form.spelling, *_names(table)] for table, form in _TABLES.items()}
    own["completion"].append(_VENDOR)
    return PatternSet((table, f"(?i){pattern.pattern}") for table, patterns in own.items() for pattern in patterns)


def number_in(text: str) -> ErrorNumber | None:
    """Return the number of an error in a line, by its digits, name or words; None without any."""
    forms = [(table, _TABLES[table]) for table in _patterns().owners(text)]
    for table, form in forms:
        known = error_numbers(table)
        for found in form.spelling.finditer(text):
            if (number := int(found[found.lastindex or 0])) in known:
                return known[number]
        code = _VENDOR.search(text) if table == "completion" else None
        if code and (status := status_of_vendor_error(int(code[1], 16 if code[1][1:2] in "xX" else 10))):
            return status
    for table, form in forms:
        names, words = _names(table)
        if (name := names.search(text) or (words.search(text) if form.words.search(text) else None)) is not None:
            return error_numbers(table)[_numbers(table)[name[0].lower()]]
    return None


@functools.cache
def _numbers(table: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for key, (names, *words) in load("error_numbers")[table].items():
        found |= dict.fromkeys((word.lower() for word in (*names.split(), words[-1])), int(key))
    return found


@functools.cache
def _names(table: str) -> tuple[re.Pattern[str], re.Pattern[str]]:
    # The longest first: the words of one may be the start of longer ones.
    texts = sorted(_numbers(table), key=len, reverse=True)
    parts = [word for word in texts if " " not in word], [word for word in texts if " " in word]
    names, words = (re.compile(rf"(?<!\w)(?:{'|'.join(map(re.escape, part))})(?!\w)", re.I) for part in parts)
    return names, words

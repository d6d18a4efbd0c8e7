"""Numbers of errors of CUDA, Linux, RDMA completions and NCCL, and other short codes and words that people type."""

from __future__ import annotations

import difflib
import functools
import re
from collections.abc import Mapping
from typing import NamedTuple

from fabtui.diagnosis.knowledge import load
from fabtui.diagnosis.knowledge.error_catalogue import Meaning, meaning_named, meaning_of
from fabtui.diagnosis.knowledge.pattern_set import PatternSet

#: A longer text is a line of a log.
_LONGEST_CODE = 60
_SXID = re.compile(r"sxid[ :#-]{0,2}(\d{4,6})", re.IGNORECASE | re.ASCII)
_VENDOR_CODE = re.compile(
    r"(?:vendor[ _]?err(?:or)?|syndrome?)[ =:]{0,2}(0x[0-9a-f]{1,4}|\d{1,4})", re.IGNORECASE | re.ASCII
)
_VARIABLE = re.compile(r"((?:NCCL|[A-Z]{2,10})_[A-Z0-9_]{2,80})(?:=(\S{0,200}))?", re.IGNORECASE | re.ASCII)
#: Beginnings of variables of which the best known are explained.
_FAMILIES = ("NCCL_", "UCX_", "NVSHMEM_", "VLLM_", "SGLANG_", "TORCH_NCCL_", "GLOO_", "NIXL_")
#: A number with the word for its table, and nothing else.
_NUMBERS = {
    "cuda": re.compile(r"(?:cuda|hip)(?: ?(?:error|failure|err))?(?: code)?[ =:#]{0,2}(\d{1,3})", re.IGNORECASE),
    "errno": re.compile(r"(?:errno|os error)[ =:#]{0,2}-?(\d{1,3})", re.IGNORECASE),
    "completion": re.compile(r"(?:wc |completion )?(?:status|wc|completion)[ =:#]{0,2}(\d{1,2})", re.IGNORECASE),
    "nccl": re.compile(r"nccl(?: ?(?:error|result))?[ =:#]{0,2}(\d)", re.IGNORECASE),
}
#: A line of a library with a number of a table, for the catalogue of errors.
_LINES = {
    "cuda": "Cuda failure {0.number} '{0.name}'",
    "completion": "Got completion with error {0.number}, opcode 0",
    "nccl": "{0.name}",
}
_IGNORE = re.ASCII | re.IGNORECASE
_VENDOR = re.compile(r"\b(?:vendor[ _]err(?:or)?|syndrome?)[ =:(]{0,3}(0x[0-9a-f]{1,4}|\d{1,4})\b", _IGNORE)


class _Table(NamedTuple):
    title: str  #: What its numbers are called in a sentence.
    spelling: re.Pattern[str]  #: A number in a line; each alternative has one group.
    words: re.Pattern[str]  #: A line in which the words of the library count, too; its names always do.


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
        re.compile(r"completion|\bwc\b|failed status|rdma|nic\b|mlx5|\bqp\b|verbs|ibv|\bcqe?\b", re.I),
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
            r"|\berror[ =:]{1,2}-?(\d{1,3})\b(?![-/:.]\d)|\bfailed with (?:error )?-?(\d{1,3})\b",
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


class ErrorNumber(NamedTuple):
    """A number of an error."""

    table: str  #: ``cuda``, ``errno``, ``completion`` or ``nccl``.
    number: int
    name: str  #: Its name in the headers of the library.
    text: str  #: What it means, a clause.

    @property
    def advice(self) -> str:
        """The first step that the number shows in any log, or ""."""
        return str(self._row.get("next", ""))

    @property
    def alone(self) -> bool:
        """True if it refutes what a stage advises."""
        return "alone" in self._row

    @property
    def _row(self) -> Mapping[str, object]:
        rows = load("error_numbers")["advice"]
        return next((row for row in rows if row["table"] == self.table and self.number in row["numbers"]), {})

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


#: Words beside which a number in a failing line of any program is one of a library.
_OF_LIBRARY = re.compile(
    r"(?i:\bcqe?\b|completion|ibv_|\bwc\b|rdma|nic\b|mlx5|\bqp\b|verbs|cuda|\bhip)|IBV_WC_|\bcu[A-Z]\w"
)


def entry_of_number(line: str) -> Meaning | None:
    """Return the entry about the completion status or CUDA error that a line of any program has."""
    # Most lines have no such number, which is seen sooner than the words of a library.
    if _LINES.keys().isdisjoint(_patterns().owners(line)) or _OF_LIBRARY.search(line) is None:
        return None
    number = number_in(line)
    return _entry(number) if number is not None and number.table in ("completion", "cuda") else None


class ShortCode(NamedTuple):
    """Meaning of a short code or word."""

    title: str
    fields: tuple[tuple[str, str], ...]  #: Names and texts.
    meaning: Meaning | None = None  #: The entry of the catalogue of errors about it.
    known: bool = True  #: False for a variable that NCCL does not have.


def short_code(text: str) -> ShortCode | None:
    """Return what a text means if it is nothing but a code or a word, else None."""
    text = " ".join(text.split())
    if not text or (len(text) > _LONGEST_CODE and not _VARIABLE.fullmatch(text)):
        return None
    for read in (_sxid, _vendor, _number, _variable):
        if (found := read(text)) is not None:
            return found
    means = load("words")["term"].get(text.lower().replace("_", " "))
    return ShortCode(text, (("means", means),)) if means else None


def _sxid(text: str) -> ShortCode | None:
    if (found := _SXID.fullmatch(text)) is None:
        return None
    name, grade = load("xids")["sxid"].get(found[1], ("not in NVIDIA's list", ""))
    fields = [("means", f"error {found[1]} of an NVSwitch: {name}")]
    if grade:
        fields.append(("grade", f"{grade.replace('_', ' ')}: {load('xids')['sxid_grade'][grade]}"))
    return ShortCode(f"SXid {found[1]}", tuple(fields), meaning_named("nvswitch-error"))


def _vendor(text: str) -> ShortCode | None:
    if (found := _VENDOR_CODE.fullmatch(text)) is None:
        return None
    code = int(found[1], 16 if found[1][1:2] in "xX" else 10)
    status = status_of_vendor_error(code)
    if status is None:
        return None
    what = f"vendor error {code} (0x{code:x}) of mlx5 NICs comes with {status.sentence}"
    return ShortCode(text, (("means", what),), _entry(status))


def _number(text: str) -> ShortCode | None:
    for table, form in _NUMBERS.items():
        if (found := form.fullmatch(text)) and (number := error_numbers(table).get(int(found[1]))):
            return _code(text, number)
    # The names of the libraries, such as IBV_WC_RETRY_EXC_ERR or cudaErrorIllegalAddress, with or without a number.
    if (found := re.fullmatch(r"([A-Za-z_]{4,60})(?: ?\(\d{1,4}\))?", text)) and (number := number_in(found[1])):
        return _code(text, number) if number.name.lower() == found[1].lower() else None
    return None


def _code(text: str, number: ErrorNumber) -> ShortCode:
    return ShortCode(text, (("means", f"{number.sentence}, {number.name}"),), _entry(number))


def _entry(number: ErrorNumber) -> Meaning | None:
    form = _LINES.get(number.table)
    return meaning_of(form.format(number)) if form else None


def _variable(text: str) -> ShortCode | None:
    if (found := _VARIABLE.fullmatch(text)) is None:
        return None
    variables = load("words")["variable"]
    name = next((known for known in variables if known.upper() == found[1].upper()), found[1].upper())
    if name not in variables and not name.startswith(_FAMILIES):
        return None
    if name not in variables:
        near = ", ".join(difflib.get_close_matches(name, variables, 3))
        what = f"no variable that is known here{f'; similar: {near}' if near else ''}"
        return ShortCode(name, (("means", what),), known=False)
    means, values = variables[name]
    return ShortCode(text if found[2] else name, (("means", means), ("values", values)))

"""Short codes and words that people type: numbers of errors, SXids, variables of NCCL, terms of GPU fabrics."""

from __future__ import annotations

import difflib
import re
from typing import NamedTuple

from fabtui.diagnosis.knowledge.error_catalogue import Meaning, meaning_named, meaning_of
from fabtui.diagnosis.knowledge.error_numbers import ErrorNumber, error_numbers, number_in, status_of_vendor_error
from fabtui.diagnosis.knowledge.toml_data import load

#: A longer text is a line of a log.
_LONGEST = 60
_SXID = re.compile(r"sxid[ :#-]{0,2}(\d{4,6})", re.IGNORECASE | re.ASCII)
_VENDOR = re.compile(
    r"(?:vendor[ _]?err(?:or)?|syndrome?)[ =:]{0,2}(0x[0-9a-f]{1,4}|\d{1,4})", re.IGNORECASE | re.ASCII
)
_VARIABLE = re.compile(r"(NCCL_[A-Z0-9_]{2,80})(?:=(\S{0,200}))?", re.IGNORECASE | re.ASCII)
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


class ShortCode(NamedTuple):
    """Meaning of a short code or word."""

    title: str
    fields: tuple[tuple[str, str], ...]  #: Names and texts.
    meaning: Meaning | None = None  #: The entry of the catalogue of errors about it.
    known: bool = True  #: False for a variable that NCCL does not have.


def short_code(text: str) -> ShortCode | None:
    """Return what a text means if it is nothing but a code or a word, else None."""
    text = " ".join(text.split())
    if not text or (len(text) > _LONGEST and not _VARIABLE.fullmatch(text)):
        return None
    for found in (_sxid(text), _vendor(text), _number(text), _variable(text), _term(text)):
        if found is not None:
            return found
    return None


def _sxid(text: str) -> ShortCode | None:
    if (found := _SXID.fullmatch(text)) is None:
        return None
    name, grade = load("xids")["sxid"].get(found[1], ("not in NVIDIA's list", ""))
    fields = [("means", f"error {found[1]} of an NVSwitch: {name}")]
    if grade:
        fields.append(("grade", f"{grade.replace('_', ' ')}: {load('xids')['sxid_grade'][grade]}"))
    return ShortCode(f"SXid {found[1]}", tuple(fields), meaning_named("nvswitch-error"))


def _vendor(text: str) -> ShortCode | None:
    if (found := _VENDOR.fullmatch(text)) is None:
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
    name, variables = found[1].upper(), load("words")["variable"]
    if name not in variables:
        near = ", ".join(difflib.get_close_matches(name, variables, 3))
        what = f"no variable of NCCL that is known here{f'; similar: {near}' if near else ''}"
        return ShortCode(name, (("means", what),), known=False)
    means, values = variables[name]
    return ShortCode(text if found[2] else name, (("means", means), ("values", values)))


def _term(text: str) -> ShortCode | None:
    means = load("words")["term"].get(text.lower().replace("_", " "))
    return ShortCode(text, (("means", means),)) if means else None

"""Data that arrived different from what was sent, recognised by the errors of tests."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from fabtui_node.parsers.lines import bytes_text
from fabtui_node.protocol import ErrorKind

#: Errors of tests as fabtui writes them; until version 0.2, recordings call them failed, and 0.1 gave no kind.
_OURS = re.compile(
    r"(?:peer: )?verify: |\d{1,15} (?:of \d{1,15} )?(?:bytes|values|elements)"
    r"(?: of the result)?(?: checked around offset \d{1,15})? (?:(?:are|is) )?wrong|the first message is wrong"
    r"|message \d{1,9} of \d{1,9} carries the number -?\d|the data that \S{1,200} sent at the same time is wrong"
)
_AMOUNT = re.compile(r"(\d{1,15}) (?:of (\d{1,15}) )?(byte|value|element)s?\b")


_CHECKED = re.compile(
    r"(\d{1,15} bytes?) wrong in the (\S{1,20} \w{1,3}) that were checked(?: \(message ([^()]{1,30})\))?"
)


def is_wrong_data(error: str | None, extra: Mapping[str, Any] | None) -> bool:
    """Return True if an error of a test of fabtui is about wrong data."""
    kind = (extra or {}).get("error_kind")
    if kind is not None:
        return bool(kind == ErrorKind.VERIFY.value)
    return error is not None and _OURS.match(error) is not None


def wrong_amount(error: str | None, size: int | None) -> str:
    """Return how much of what was checked was wrong: ``1 byte of the 1 MiB checked (message 256 MiB)``.

    For errors of earlier versions, how much of the message: ``1 byte of 4 MiB``; "" if the error lacks it.
    """
    if now := _CHECKED.search((error or "")[:500]):
        return f"{now[1]} of the {now[2]} checked" + (f" (message {now[3]})" if now[3] else "")
    found = _AMOUNT.search((error or "")[:500])
    if found is None:
        return ""
    number, of, what = int(found[1]), found[2], found[3]
    amount = f"{number:,} {what}" + ("" if number == 1 else "s")
    if what != "byte":
        return amount
    # NCCL's sample is a part of the message.
    whole = size if size is not None else int(of) if of else None
    return amount if whole is None else f"{amount} of {bytes_text(whole)}"

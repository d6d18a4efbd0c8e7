"""``ibping``: round trips of management packets to a LID. It exits with 0 even when nothing came back."""

from __future__ import annotations

import re
from typing import Any, Dict, List

from fabtui_node.parsers.base import Format, Notes, Reading
from fabtui_node.parsers.ib import values as ibwords

_PONG = re.compile(r"Pong from (.{1,200}) \((.{1,100}?)\): time ([0-9]{1,9}\.[0-9]{1,6}) ms", re.ASCII)
_TITLE = re.compile(r"--- (.{0,200}?) \((.{1,100}?)\) ibping statistics ---", re.ASCII)
_SENT = re.compile(
    r"([0-9]{1,12}) packets transmitted, ([0-9]{1,12}) received, ([0-9]{1,5})% packet loss, time ([0-9]{1,12}) ms",
    re.ASCII,
)
_TIMES = re.compile(r"rtt min/avg/max = ([0-9.]{1,15})/([0-9.]{1,15})/([0-9.]{1,15}) ms", re.ASCII)


def likely(text: str) -> float:
    """Return the likelihood that a text is output of ``ibping``."""
    return 0.97 if "ibping statistics ---" in text else 0.9 if re.search(r"^Pong from ", text, re.MULTILINE) else 0.0


def parse(text: str) -> Reading:
    """Return ``{"host", "target", "sent", "received", "loss", "rtt_min", "rtt_avg", "rtt_max", "rtts"}``.

    Without an answer the times are None: the tool prints zeros then.
    """
    notes = Notes()
    names = ("host", "target", "sent", "received", "loss", "rtt_min", "rtt_avg", "rtt_max")
    values: Dict[str, Any] = dict.fromkeys(names)
    rtts: List[float] = []
    for line in ibwords.lines(text):
        pong, title, sent, times = _PONG.match(line), _TITLE.match(line), _SENT.match(line), _TIMES.match(line)
        if pong:
            values["host"], values["target"] = pong.group(1), pong.group(2)
            rtts.append(float(pong.group(3)))
        elif title:
            values["host"], values["target"] = title.group(1).strip() or values["host"], title.group(2)
        elif sent:
            values["sent"], values["received"] = int(sent.group(1)), int(sent.group(2))
            values["loss"] = float(sent.group(3))
        elif times:
            if values["received"]:
                found = (ibwords.decimal(word) for word in times.groups())
                values["rtt_min"], values["rtt_avg"], values["rtt_max"] = found
        elif ibwords.complaint(line):
            notes.warn(line)
        else:
            notes.puzzled(line)
    values["rtts"] = rtts
    return notes.reading(values)


FORMATS = [
    Format(
        "ibping",
        "ibping: round trips of management packets",
        (),
        {"loss": "%", "rtt_min": "ms", "rtt_avg": "ms", "rtt_max": "ms", "rtts": "ms"},
        likely,
        parse,
    )
]

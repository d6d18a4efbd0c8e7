"""Styled text for verdicts, states, times and values. Styles are names of the colours of the theme."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from fabtui.model.cell_level import ratio
from fabtui.model.endpoints import PairClass
from fabtui.model.events import NodeState
from fabtui.model.facts.link_limits import LEAST_BYTES, limit_of
from fabtui.model.measurement import Measurement, Verdict
from fabtui.presentation.cell_levels import Glyphs, style_of
from fabtui.presentation.numbers import percent_text, reduced_text, spoken, spoken_text, value_text
from fabtui.sanitize import one_line
from fabtui_node.parsers.lines import bytes_text

if TYPE_CHECKING:
    from fabtui.model.session_model import Model

Part = tuple[str, str]

MUTED = "$foreground 60%"
#: How the styles of cells begin, which have a fill, and those of the same colours without one.
CELL, TONE = "$cell-", "$tone-"

CLASS_WORDS = {
    PairClass.SAME_NODE: "node",
    PairClass.SAME_DOMAIN: "domain",
    PairClass.SAME_RAIL: "rail",
    PairClass.CROSS_LEAF: "leaf",
    PairClass.CROSS_RAIL: "cross",
    PairClass.NODE_PAIR: "between nodes",
    PairClass.ONE_NODE: "within a node",
    PairClass.ALL: "all",
}

_VERDICT_WORDS = {verdict.value: verdict.words for verdict in Verdict}
_STATE_STYLES = {
    NodeState.WAITING: MUTED,
    **dict.fromkeys((NodeState.CONNECTING, NodeState.CONNECTED, NodeState.LOOKING), "$accent"),
    NodeState.READY: "$primary",
    **dict.fromkeys((NodeState.FAILED, NodeState.LOST), "bold $error"),
}


def verdict_style(verdict: Verdict) -> str:
    return MUTED if verdict is Verdict.UNTESTED else f"{CELL}{style_of(verdict, 1.0).key}"


def verdict_tone(verdict: Verdict) -> str:
    return MUTED if verdict is Verdict.UNTESTED else f"{TONE}{style_of(verdict, 1.0).key}"


def verdict_words(verdict: str) -> str:
    return _VERDICT_WORDS.get(verdict, verdict)


def verdict_part(verdict: Verdict, glyphs: Glyphs) -> Part:
    """Return the glyph and the name of a verdict; ``ok`` has no glyph."""
    glyph = "" if verdict is Verdict.OK else glyphs.of_style[style_of(verdict, None)]
    return f"{glyph} {verdict_words(verdict)}".lstrip(), verdict_style(verdict)


def state_style(state: NodeState) -> str:
    return _STATE_STYLES[state]


def clock_text(seconds: float) -> str:
    """Return a duration as ``0:08`` or ``1:02:03``."""
    minutes, rest = divmod(max(0, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def retry_text(retry: float | None, now: float) -> str:
    """Return when a node that is gone is tried again (``next try in 8 s``), or ""; times in s since the epoch."""
    if retry is None:
        return ""
    return f"next try in {math.ceil(retry - now)} s" if retry > now else "trying again now"


def time_text(when: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(when))


def about_text(seconds: float) -> str:
    """Return a remaining time with its precision: ``about 8 s left``."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s left"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


def measured_text(measurement: Measurement) -> str:
    return "-" if measurement.value is None else spoken_text(measurement.value, measurement.unit)


def message_text(measurement: Measurement) -> str:
    """Return the size of a message, and where it is smaller than requested how long that would take."""
    reduced = measurement.reduced
    return bytes_text(measurement.bytes) if reduced is None else reduced_text(reduced)


def usual_share_text(model: Model, measurement: Measurement) -> str:
    """Return a value as a percentage of the usual one of its class: ``0.5 % of the usual 360``, or ""."""
    usual = model.usual(measurement)
    share = ratio(measurement.layer, measurement.value, usual)
    if share is None or usual is None or measurement.value is None:
        return ""
    values = model.results.values(measurement.layer, model.key_of(measurement))
    if measurement.value == usual and values is not None and len(values) == 1:
        return "nothing to compare with"
    return f"{percent_text(measurement.value / usual)} of the usual {_beside(measurement, usual)}"


def _beside(measurement: Measurement, other: float) -> str:
    assert measurement.value is not None
    value, unit = spoken(other, measurement.unit)
    same = unit == spoken(measurement.value, measurement.unit)[1]
    return value_text(value) if same else f"{value_text(value)} {unit}"


def limit_text(model: Model, measurement: Measurement) -> str:
    """Return a value as a percentage of the limit of its links: ``75 % of the NVLink limit 478``, or ""."""
    limit = limit_of(model, measurement) if measurement.value and (measurement.bytes or 0) >= LEAST_BYTES else None
    if limit is None or measurement.value is None:
        return ""
    share = percent_text(measurement.value / limit.value)
    return f"{share} of the {limit.what} limit {_beside(measurement, limit.value)}"


def failure_text(measurement: Measurement, limit: int = 300) -> str:
    return one_line(measurement.error or "", limit)


def ping_extra(measurement: Measurement) -> str:
    loss = (measurement.extra or {}).get("loss")
    return f"loss {loss:g} %" if isinstance(loss, (int, float)) else ""


def plain(parts: list[Part]) -> str:
    return "".join(text for text, _ in parts)


def common_domain(names: Iterable[str]) -> str:
    """Return the domain that several node names share, with its first dot, or ""; labels omit it."""
    # The first part of a name is never part of the domain.
    parts = [name.split(".") for name in dict.fromkeys(names)]
    common: list[str] = []
    for at in zip(*(reversed(one[1:]) for one in parts), strict=False):
        if len(parts) < 2 or len(set(at)) > 1:
            break
        common.insert(0, at[0])
    # IP addresses may share their last parts as well.
    has_letters = any(character.isalpha() for part in common for character in part)
    return "." + ".".join(common) if has_letters and all(one[0] for one in parts) else ""


def without_domain(domain: str, text: str) -> str:
    """Return a text without the common domain of node names; not for commands to be typed."""
    return text.replace(domain, "") if domain else text

"""Carriers of the bytes between nodes: a sentence about the session, and a line for each pair."""

from __future__ import annotations

import textwrap

from fabtui.diagnosis.pairs.carriers import carrier, carriers, latest_pairs
from fabtui.model.session_model import Model
from fabtui.report.tables import MOST_LINES, capped
from fabtui.sanitize import one_line

_WIDTH = 110


def carrier_lines(model: Model, every_pair: bool) -> list[str]:
    """Return the sentence, and with ``every_pair`` the pairs as well, those that are alike together."""
    sentence = carriers(model).sentence
    if not sentence or not every_pair:
        return [sentence] if sentence else []
    alike: dict[str, list[str]] = {}
    for m in sorted(latest_pairs(model), key=lambda one: (model.number(one.src) or 0, model.number(one.dst) or 0)):
        if found := carrier(model, m):
            alike.setdefault(one_line(found.text, 300), []).append(f"{m.src} > {m.dst}")
    lines = []
    for text, pairs in alike.items():
        named = one_line(", ".join(pairs), 1 << 20)
        lines += [f"  {text}", *textwrap.wrap(named, _WIDTH, initial_indent=" " * 4, subsequent_indent=" " * 4)]
    return capped([sentence], lines, "lines", MOST_LINES, "--json has all pairs")

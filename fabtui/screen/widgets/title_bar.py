"""Title bar: session, progress, layers and lasting warnings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from textual import events
from textual.content import Content
from textual.message import Message

from fabtui.model.events import NodeState
from fabtui.model.layers import Layer
from fabtui.model.measurement import Verdict, worst
from fabtui.model.session_model import Model, NodeRecord
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.progress_estimate import phase_text
from fabtui.presentation.wording import MUTED, Part, about_text, clock_text, plain, retry_text, verdict_style
from fabtui.presentation.wrapping import clipped
from fabtui.sanitize import one_line
from fabtui.screen.widgets.sparkline import bad_trend
from fabtui.screen.widgets.text_line import TextLine

#: Length of the names of layers without bad pairs if there is no room for all names.
_CUT = 4
_BAR = 24
#: Maximum share of the title line for warnings.
_WARNING_SHARE = 0.5
_SHORTEST_BAR = 6
#: Minimum room for the title of a session.
_SHORTEST_TITLE = 8
#: Maximum number of lost nodes that are named.
_MAX_LOST = 3


def fabric_text(model: Model) -> str:
    """Return the number of nodes and the kinds of endpoints, for example ``2 nodes  16 x H200``."""
    nodes = len(model.nodes)
    text = f"{nodes} node{'s' if nodes != 1 else ''}" if nodes else ""
    kinds: Counter[str] = Counter()
    for (kind, name), count in model.kinds.items():
        if kind in ("gpu", "cpu"):
            kinds["CPU ranks" if kind == "cpu" else one_line(name, 40).removeprefix("NVIDIA ") or "GPU"] += count
    shown = [f"{count} x {name}" for name, count in kinds.most_common(2)]
    if len(kinds) > 2:
        shown.append(f"{sum(count for _, count in kinds.most_common()[2:])} others")
    return "  ".join([text, *shown]).strip()


def progress(model: Model, elapsed: float, glyphs: Glyphs, room: int, *, any_bad: bool = False) -> list[Part]:
    """Return the progress of the sweep, in at most ``room`` characters if possible.

    ``elapsed`` is the duration of the session (s); ``any_bad``: a pair is bad in some layer.
    """
    clock = clock_text(elapsed)
    if model.exit_code == 0 and any_bad:
        return [_OK_ALONE, (f"  {clock}", "")]
    if model.exit_code is not None:
        return [_ENDS.get(model.exit_code, (f"exit {model.exit_code}", "bold $warning")), (f"  {clock}", "")]
    phase = model.phase
    name = phase_text(model)
    paused: list[Part] = [(" PAUSED ", "bold reverse")] if model.paused else []
    if phase.name in ("start", "connect", "look"):
        ready = sum(record.inventory is not None for record in model.nodes.values())
        gone = sum(record.state.gone for record in model.nodes.values())
        failed = [(f", {gone} failed", "bold $error")] if gone else []
        head = [("connecting ", ""), (f"{ready}/{len(model.nodes)} ready", "bold")]
        return [*head, *failed, (f"  {clock}", ""), *paused]
    if phase.name == "done":
        return [("done", "bold"), (f"  {clock}", ""), *paused]
    if not phase.total:
        what = "retests" if phase.name == "watch" else "done"
        count = f"{model.done} {what}  " if model.done else " "
        parts = [(f"{name} ", "bold"), (count, ""), (clock, ""), *paused]
        trend = bad_trend(model, glyphs) if phase.name == "watch" else []
        return [*trend, *parts] if len(plain([*trend, *parts])) <= room else parts
    done = min(model.done, phase.total)
    left = ""
    spent = elapsed - (phase.since - model.started)
    if 0 < done < phase.total and spent > 1 and not model.paused:
        left = "  " + about_text(spent / done * (phase.total - done))
    tail = f" {done}/{phase.total}  {clock}{left}"
    bar = min(_BAR, room - len(name) - 1 - len(tail) - (9 if paused else 0))
    if bar < _SHORTEST_BAR:
        tail = f" {done}/{phase.total} {clock}"
        bar = min(_BAR, room - len(name) - 1 - len(tail) - (9 if paused else 0))
    full = round(max(0, bar) * done / phase.total)
    drawn: list[Part] = []
    if bar >= _SHORTEST_BAR:
        drawn = [(glyphs.bar[0] * full, "$primary"), (glyphs.bar[1] * (bar - full), MUTED)]
    return [(f"{name} ", "bold"), *drawn, (tail, ""), *([(" ", ""), *paused] if paused else [])]


_ENDS = {
    0: ("all ok", "bold $primary"),
    1: ("problems found", "bold $error"),
    3: ("incomplete", "bold $warning"),
    130: ("interrupted", "bold $warning"),
}


#: Pairs may be slow beside other traffic and ok alone: they count in no exit code.
_OK_ALONE = ("ok alone", "bold $warning")


def title_content(
    model: Model,
    title: str,
    elapsed: float,
    glyphs: Glyphs,
    width: int,
    warnings: Sequence[Part] = (),
    *,
    any_bad: bool = False,
) -> Content:
    """Return the title line: nodes and title, then progress and warnings at the right end; the title is cut first.

    ``any_bad``: a pair is bad in some layer.
    """
    warnings = clipped([(" ", ""), *warnings], round(width * _WARNING_SHARE), glyphs.ellipsis) if warnings else []
    width -= len(plain(warnings))
    fabric = fabric_text(model)
    left: list[Part] = [("fabtui ", "bold $primary"), *([(f"{fabric}  ", "bold")] if fabric else [])]
    right = progress(model, elapsed, glyphs, width - len(plain(left)) - 2, any_bad=any_bad)
    room = width - len(plain(left)) - len(plain(right)) - 2
    if room < 0 and fabric:
        left.pop()
        room += len(fabric) + 2
    name = one_line(title, 60) or ""
    if len(name) > room:
        name = name[: room - 1] + glyphs.ellipsis if room > _SHORTEST_TITLE else ""
    left.append((name, MUTED if fabric else "bold"))
    return Content.assemble(*left, " " * max(2, width - len(plain(left)) - len(plain(right))), *right, *warnings)


class LayerTabs(TextLine):
    """Layers with their keys; a click chooses one."""

    class Chosen(Message):
        """A layer was clicked."""

        def __init__(self, layer: Layer) -> None:
            super().__init__()
            self.layer = layer

    DEFAULT_CSS = "LayerTabs { width: auto; min-width: 60; }"

    #: Start, end and name of each layer.
    spans: Sequence[tuple[int, int, Layer]] = ()
    #: Width of the text.
    width = 0

    def choose(
        self, layer: Layer, layers: list[Layer], width: int, bad: Mapping[Layer, Mapping[Verdict, int]] | None = None
    ) -> None:
        """Show the layers with the chosen one highlighted; ``bad``: number of pairs of a layer by bad verdict."""
        found = {one: counts for one, counts in (bad or {}).items() if counts}
        numbers = {one: (f" {sum(counts.values())}!", verdict_style(worst([*counts]))) for one, counts in found.items()}
        names = {one: str(one) for one in layers}
        least = sum(len(f"{one.spec.key} {one}") + len(numbers.get(one, ("", ""))[0]) + 1 for one in layers) - 1
        blank = "" if least + len(layers) > width else " "
        if least > width:
            names = {one: name if one is layer or one in numbers else name[:_CUT] for one, name in names.items()}
        parts: list[Part] = []
        spans = []
        at = 0
        for one in layers:
            text, style = f"{blank}{one.spec.key} {names[one]}", "bold reverse" if one is layer else ""
            number, color = numbers.get(one, ("", ""))
            parts += [(text, style), (number, color), (blank, style)]
            length = len(text) + len(number) + len(blank)
            spans.append((at, at + length, one))
            at += length
            if not blank:
                parts.append((" ", ""))
                at += 1
        self.spans, self.width = spans, at
        self.show(Content.assemble(*parts), layout=True)

    def on_click(self, event: events.Click) -> None:
        for start, end, layer in self.spans:
            if start <= event.x < end:
                self.post_message(self.Chosen(layer))


def lost_nodes(model: Model) -> list[NodeRecord]:
    """Return the lost nodes, most recently lost first."""
    found = [record for record in model.nodes.values() if record.state is NodeState.LOST]
    return sorted(found, key=lambda record: -record.since)


def lost_badge(model: Model, now: float) -> list[Part]:
    """Return the lost nodes on one line, or nothing; ``now`` is the time of the session (s since the epoch)."""
    lost = lost_nodes(model)
    if not lost:
        return []
    shown = ", ".join(f"{one_line(one.name, 40)} for {clock_text(now - one.since)}" for one in lost[:_MAX_LOST])
    if len(lost) == 1 and (retry := retry_text(lost[0].retry, now)):
        shown += f", {retry}"
    more = f" and {len(lost) - _MAX_LOST} more" if len(lost) > _MAX_LOST else ""
    return [(" LOST ", "bold reverse"), (f" {shown}{more}  ", "bold $error")]


def badges(model: Model, lasting: list[str]) -> list[Part]:
    """Return the lasting warnings on one line, or nothing."""
    parts: list[Part] = []
    for badge in lasting:
        parts += [(f" {one_line(badge, 100)} ", "bold reverse"), (" ", "")]
    if model.synthetic:
        parts += [(" SYNTHETIC ", "bold reverse"), (" generated values, not measurements ", "$accent")]
    if model.faults:
        shown = ", ".join(one_line(fault, 80) for fault in model.faults)
        parts += [(" LAB ", "bold reverse"), (f" deliberate faults: {shown}", "$accent")]
    elif model.lab:
        parts += [(" LAB ", "bold reverse"), (f" {one_line(model.lab, 40)}: nodes on this machine", "$accent")]
    return parts

"""Head of the main screen: the verdict with quiet facts at the right end of its line, and the layers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from textual import events
from textual.content import Content
from textual.message import Message

from fabtui.model.events import NodeState
from fabtui.model.layers import Layer, pair_layers
from fabtui.model.measurement import Verdict, worst
from fabtui.model.session_model import Model, NodeRecord
from fabtui.nodeset import count
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.progress_estimate import phase_text
from fabtui.presentation.wording import (
    CELL,
    MUTED,
    TONE,
    Part,
    about_text,
    clock_text,
    plain,
    retry_text,
    verdict_tone,
    without_domain,
)
from fabtui.presentation.wrapping import Line
from fabtui.sanitize import one_line
from fabtui.screen.widgets.sparkline import bad_trend
from fabtui.screen.widgets.text_line import TextLine
from fabtui.session.feeds.base import Playback

#: Minimum width of the layers.
MIN_TABS = 60
#: Share of the line for quiet facts where the verdict would take all of it.
_QUIET_SHARE = 0.26
#: Length of the bar of a seek.
_SEEK_BAR = 20
#: Maximum number of lost nodes that are named.
_MAX_LOST = 2
_QUIET_ENDS = {130: "interrupted after"}


class QuietFact(NamedTuple):
    """A quiet fact about the session; of those that do not fit, the ones of the lowest rank are left out first."""

    rank: int
    parts: Line
    #: Words of a verdict that reports the same; if it has all of them, ``further`` replaces the fact.
    reported: Sequence[str] = ()
    further: Sequence[Part] = ()


def head_line(sentence: Callable[[int | None], Line], facts: Sequence[QuietFact], width: int, glyphs: Glyphs) -> Line:
    """Return the verdict for a width, and the quiet facts that fit; what the verdict reports is shown once."""
    rest = [fact._replace(parts=[*fact.further]) if fact.reported else fact for fact in facts]
    line = _head_line(sentence, [fact for fact in rest if fact.parts], width, glyphs)
    if all(words in plain(line) for fact in facts for words in fact.reported):
        return line
    return _head_line(sentence, facts, width, glyphs)


def _head_line(sentence: Callable[[int | None], Line], facts: Sequence[QuietFact], width: int, glyphs: Glyphs) -> Line:
    needed = len(plain(sentence(None))) + 2
    room = max(round(width * _QUIET_SHARE), width - needed - 2)
    kept = list(facts)
    while kept and len(plain(_quiet(kept, glyphs))) > room:
        kept.remove(min(kept))
    quiet = _quiet(kept, glyphs)
    # A blank at the right end.
    width -= 1
    left = width - (len(plain(quiet)) + 1 if quiet else 0)
    (text, style), *rest = sentence(left - 2) or [("", "")]
    if style.startswith(CELL) and rest:
        # The fill of the numbers separates them from what follows.
        (first, tone), *others = rest
        rest = [
            (" ", ""),
            (first.removeprefix(":").removeprefix(";").removeprefix(",").removeprefix(" "), tone),
            *others,
        ]
    # A suspect has a hollow mark instead of a fill.
    mark = glyphs.hollow if style.startswith(TONE) else ""
    text = f"{mark} {text}{' ' if style.startswith(CELL) else ''}"
    line: Line = [(text, style), *rest]
    return [*line, (" " * max(1, width - len(plain(line)) - len(plain(quiet))), ""), *quiet] if quiet else line


def _quiet(facts: Sequence[QuietFact], glyphs: Glyphs) -> Line:
    gap: Line = [(f" {glyphs.dot} ", MUTED)]
    return [part for at, fact in enumerate(facts) for part in ([*gap, *fact.parts] if at else fact.parts)]


def quiet_facts(
    model: Model, elapsed: float, now: float, replay: str, glyphs: Glyphs, domain: str = ""
) -> list[QuietFact]:
    """Return what is shown beside the verdict; ``elapsed`` in s, ``now`` in s since the epoch, ``replay``: position."""
    nodes = len(model.nodes)
    facts = [_lost_fact(model, now, domain)]
    if trend := bad_trend(model, glyphs) if model.watching else []:
        facts.append(QuietFact(8, trend))
    if nodes:
        facts.append(QuietFact(2, [(f"{nodes} node{'s' if nodes != 1 else ''}", MUTED)]))
    facts += [
        QuietFact(1, [(hardware_text(model), MUTED)]),
        QuietFact(3, [(one_line(model.plan.partition(", then")[0], 60), MUTED)]),
        *(QuietFact(rank, [(text, MUTED)]) for rank, text in _progress(model, elapsed)),
    ]
    if model.paused:
        facts.append(QuietFact(8, [("PAUSED", "bold reverse")]))
    mark = "SYNTHETIC" if model.synthetic else "LAB" if model.lab or model.faults else ""
    facts += [QuietFact(6, [(mark, f"bold {MUTED}")]), QuietFact(7, [(replay, f"bold {MUTED}")])]
    return [fact for fact in facts if plain(fact.parts)]


def replay_text(state: Playback, *, room: bool) -> str:
    """Return the position of a replay, and its speed; without ``room`` in fewer characters."""
    speed = f" x{state.speed:g}" if state.speed not in (None, 1.0) else ""
    share = f"{min(1.0, state.position / state.length):.0%}" if state.length else clock_text(state.position)
    if not room or not state.length or state.position >= state.length:
        return f"REPLAY {share}{speed}"
    return f"REPLAY {clock_text(state.position)} of {clock_text(state.length)}{speed}"


def seek_line(state: Playback, glyphs: Glyphs) -> Line:
    reached, position = state.reached or 0.0, state.position
    line: Line = [(f"seeking {clock_text(position)} ", "bold")]
    # The next change may be anywhere.
    if position > reached:
        share = min(1.0, reached / position)
        full = round(_SEEK_BAR * share)
        line += [(glyphs.bar[0] * full, "$primary"), (glyphs.bar[1] * (_SEEK_BAR - full), MUTED), (f" {share:.0%}", "")]
    return line


def hardware_text(model: Model) -> str:
    """Return the kinds of endpoints with their numbers, for example ``16 x H200``."""
    kinds: Counter[str] = Counter()
    for (kind, name), number in model.kinds.items():
        if kind in ("gpu", "cpu"):
            kinds["CPU rank" if kind == "cpu" else one_line(name, 40).removeprefix("NVIDIA ") or "GPU"] += number
    shown = [
        count(number, name) if name == "CPU rank" else f"{number} x {name}" for name, number in kinds.most_common(2)
    ]
    if len(kinds) > 2:
        shown.append(f"{sum(number for _, number in kinds.most_common()[2:])} others")
    return ", ".join(shown)


def _progress(model: Model, elapsed: float) -> list[tuple[int, str]]:
    clock, phase = clock_text(elapsed), model.phase
    if model.exit_code is not None or phase.name == "done":
        # What follows a sweep, such as notes and experiments, takes no time of it.
        took = clock_text(model.sweep_seconds or elapsed)
        return [(3, f"{_QUIET_ENDS.get(model.exit_code or 0, 'done in')} {took}")]
    if phase.name in ("start", "connect", "look"):
        return [(3, clock)]
    name = phase_text(model)
    if not phase.total:
        what = "retests" if phase.name == "watch" else "done"
        return [(5, f"{name}, {model.done} {what}" if model.done else name), (3, clock)]
    done = min(model.done, phase.total)
    # The verdict has the number of pairs that are tested; that of a layer would begin with none.
    part = f" {done / phase.total:.0%}" if done < phase.total else ""
    found = [(5, name + (part if phase.name in pair_layers() else f" {done}/{phase.total}")), (3, clock)]
    spent = elapsed - (phase.since - model.started)
    if 0 < done < phase.total and spent > 1 and not model.paused:
        found.append((4, about_text(spent / done * (phase.total - done))))
    return found


def connecting_line(model: Model) -> Line:
    ready = sum(record.inventory is not None for record in model.nodes.values())
    gone = sum(record.state.gone for record in model.nodes.values())
    failed: Line = [(f", {gone} failed", "bold $error")] if gone else []
    return [("connecting: ", ""), (f"{ready} of {len(model.nodes)} ready", "bold"), *failed]


class LayerTabs(TextLine):
    """Layers with their keys; a click chooses one."""

    @dataclass
    class Chosen(Message):
        """A layer was clicked."""

        layer: Layer

    DEFAULT_CSS = f"LayerTabs {{ width: auto; min-width: {MIN_TABS}; }}"

    spans: Sequence[tuple[int, int, Layer]] = ()  #: Start, end and name of each layer.
    width = 0  #: Width of the text.

    def choose(
        self, layer: Layer, layers: list[Layer], width: int, bad: Mapping[Layer, Mapping[Verdict, int]] | None = None
    ) -> None:
        """Show the layers with the chosen one highlighted; ``bad``: number of pairs of a layer by bad verdict."""
        found = {one: counts for one, counts in (bad or {}).items() if counts}
        numbers = {one: (f" {sum(counts.values())}", verdict_tone(worst([*counts]))) for one, counts in found.items()}
        names = {one: str(one) for one in layers}
        least = sum(len(f"{one.spec.key} {one}") + len(numbers.get(one, ("", ""))[0]) + 1 for one in layers) - 1
        blank = "" if least + len(layers) > width else " "
        if least > width:
            # A cut name is worth less than none.
            names = {one: name if one is layer or one in numbers else "" for one, name in names.items()}
        parts: list[Part] = []
        spans = []
        at = 0
        for one in layers:
            text, style = f"{blank}{one.spec.key} {names[one]}".rstrip(), "bold reverse" if one is layer else ""
            number, color = numbers.get(one, ("", ""))
            # The chosen one is reversed as a whole.
            parts += [(text, style), (number, style or f"bold {color}"), (blank, style)]
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
    found = [record for record in model.nodes.values() if record.state is NodeState.LOST]
    return sorted(found, key=lambda record: -record.since)


def _lost_fact(model: Model, now: float, domain: str) -> QuietFact:
    """Return since when nodes are lost; ``now`` is the time of the session (s since the epoch)."""
    lost = lost_nodes(model)
    names = [without_domain(domain, one_line(one.name, 40)) for one in lost[:_MAX_LOST]]
    since = [f" for {clock_text(now - one.since)}" if now - one.since >= 1 else "" for one in lost]
    shown = ", ".join(f"{name} lost{text}" for name, text in zip(names, since, strict=False))
    retry = retry_text(lost[0].retry, now) if len(lost) == 1 else ""
    shown += f", {retry}" if retry else ""
    if len(lost) > _MAX_LOST:
        return QuietFact(9, [(f"{shown} and {len(lost) - _MAX_LOST} more", "$error")])
    further = [(retry, "$error")] if retry else []
    return QuietFact(9, [(shown, "$error")] if lost else [], [f"{name} is lost" for name in names], further)

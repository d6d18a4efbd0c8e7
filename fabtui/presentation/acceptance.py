"""Acceptance of a cluster: a profile lists items with limits, and each has an outcome with its evidence.

The items are judged from a diagnosis, so that a session, a recording and a resumed session give the same page.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from fabtui.diagnosis import knowledge
from fabtui.diagnosis.diagnosis import Diagnosis
from fabtui.diagnosis.finding import RULES, Finding, Severity
from fabtui.diagnosis.preflight.environment import expectations
from fabtui.errors import InputError
from fabtui.exit_status import ALL_OK, BAD, NOT_TESTED
from fabtui.model.facts.compare import shown
from fabtui.model.layers import Layer, all_layers, pair_layers
from fabtui.model.measurement import Measurement, Verdict
from fabtui.nodeset import count, fold
from fabtui.presentation.findings import placed_title
from fabtui.presentation.numbers import spoken_text
from fabtui.sanitize import one_line
from fabtui_node import registry

PROFILES = Path(knowledge.__file__).with_name("profiles")
#: Maximum number of findings, nodes or pairs that the evidence of an item names.
_MOST = 4
_TESTED = (Verdict.OK, Verdict.SLOW, Verdict.FAILED, Verdict.TIMEOUT, Verdict.WRONG)


class ItemOutcome(StrEnum):
    """Outcome of an item."""

    PASS = "pass"  # noqa: S105 - a word
    FAIL = "fail"
    NOT_TESTED = "not tested"
    NOT_COVERED = "not covered"


class Item(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """An item of a profile. What it asks for is a fact, rules without a finding, or a layer; else it is not covered."""

    id: str
    title: str
    group: str = ""
    fact: str = ""  #: Name of a fact of `fabtui preflight --all`.
    equals: list[str] = []  #: The values that it may have, on every node.
    least: float | None = None  #: Its least value, or that of the layer (in its unit), on every node or pair.
    most: float | None = None
    same: bool = False  #: The fact has one value on all nodes.
    rules: list[str] = []  #: Ids of rules without a finding worse than a note, those with ``:TOPIC`` about this alone.
    probes: list[str] = []  #: Probes that must have an answer from every node: the rules need it.
    layer: str = ""  #: Layer of which every pair, or group, passes.
    group_of: str = ""  #: Name of the group of a collective, such as ``all``; empty for all groups.
    of_usual: float | None = None  #: Least share of the usual value of its class.
    covered_by: str = ""  #: What covers an item that fabtui does not: a tool, or a person.


class Profile(msgspec.Struct, forbid_unknown_fields=True):
    """A list of items, and the options of the session that tests them, as on the command line of ``run``."""

    title: str
    source: str = ""
    run: dict[str, str] = {}
    item: list[Item] = []


class JudgedItem(NamedTuple):
    """An item with its outcome."""

    item: Item
    outcome: ItemOutcome
    evidence: tuple[str, ...]  #: Sentences.


def read_profile(name: str) -> Profile:
    """Return the profile of a file, or of a name of those that ship.

    Raises:
        InputError: There is none, or it is not valid.
    """
    path = PROFILES / f"{name}.toml" if name in shipped() else Path(name).expanduser()
    try:
        profile = msgspec.convert(tomllib.loads(path.read_text("utf-8")), Profile)
    except OSError as error:
        known = ", ".join(shipped())
        raise InputError(f"--profile: cannot read {name}: {error.strerror}; those that ship: {known}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise InputError(f"--profile: {name}: {one_line(str(error), 200)}") from None
    for item in profile.item:
        if problem := _problem(item):
            raise InputError(f"--profile: {name}: item {item.id!r}: {problem}")
        if item.fact:
            expectations([f"{item.fact}=x"])
    if len({item.id for item in profile.item}) < len(profile.item) or not profile.item:
        raise InputError(f"--profile: {name}: no items, or two with the same id")
    return profile


def _problem(item: Item) -> str:
    known = {rule.id for rule in RULES} | registry.PROBES.keys() | set(all_layers())
    named = [*(rule.partition(":")[0] for rule in item.rules), *item.probes, *filter(None, [item.layer])]
    if sum(map(bool, (item.fact, item.rules, item.layer, item.covered_by))) != 1:
        return "it needs one of fact, rules, layer and covered_by"
    return next((f"there is no {name!r}" for name in named if name not in known), "")


def shipped() -> list[str]:
    return sorted(path.stem for path in PROFILES.glob("*.toml"))


def judge(profile: Profile, found: Diagnosis) -> list[JudgedItem]:
    return [_judged(item, found) for item in profile.item]


def code_of(judged: list[JudgedItem]) -> int:
    """Return the exit code: 1 for an item that fails, 3 for one that was not tested."""
    outcomes = {one.outcome for one in judged}
    return BAD if ItemOutcome.FAIL in outcomes else NOT_TESTED if ItemOutcome.NOT_TESTED in outcomes else ALL_OK


def _judged(item: Item, found: Diagnosis) -> JudgedItem:
    if item.covered_by:
        return JudgedItem(item, ItemOutcome.NOT_COVERED, (item.covered_by,))
    outcome, evidence = (_by_fact if item.fact else _by_rules if item.rules else _by_layer)(item, found)
    left = len(evidence) - 1 - _MOST
    return JudgedItem(item, outcome, (*evidence[: _MOST + 1], *([f"and {left} more"] if left > 0 else [])))


def _by_fact(item: Item, found: Diagnosis) -> tuple[ItemOutcome, list[str]]:
    table = found.preflight.table
    values: dict[str, Any] = table.values.get(item.fact) or dict.fromkeys(table.nodes)
    unit = next((fact.unit for fact in table.facts if fact.name == item.fact), "")
    groups: dict[str, list[str]] = {}
    for node, value in values.items():
        groups.setdefault(shown(value, unit), []).append(node)
    unknown = groups.pop(shown(None), [])
    lines = [f"{fold(nodes)}: {text}" for text, nodes in sorted(groups.items(), key=lambda group: -len(group[1]))]
    bad = any(value is not None and not _holds(item, value, unit) for value in values.values())
    if bad or (item.same and len(groups) > 1):
        return ItemOutcome.FAIL, lines
    if unknown or not values:
        return ItemOutcome.NOT_TESTED, [f"unknown of {fold(unknown) if unknown else 'every node'}", *lines]
    return ItemOutcome.PASS, lines


def _holds(item: Item, value: Any, unit: str) -> bool:
    words = {str(value).casefold(), shown(value, unit).casefold()}
    if item.equals and words.isdisjoint(map(str.casefold, item.equals)):
        return False
    number = value if isinstance(value, (int, float)) else math.nan
    # Comparisons with what is not a number are false.
    return (item.least is None or number >= item.least) and (item.most is None or number <= item.most)


def _by_rules(item: Item, found: Diagnosis) -> tuple[ItemOutcome, list[str]]:
    # A finding that is one among others of the preflight is listed there alone.
    each: list[Finding] = [*found.all_findings, *found.preflight.findings]
    mine = {(one.rule.id, one.topic, one.nodes): one for one in each if _is_asked(item, one)}
    if wrong := [one for one in mine.values() if one.severity is not Severity.NOTE]:
        return ItemOutcome.FAIL, [f"{one.rule.id} {one_line(placed_title(one), 300)}" for one in wrong]
    records = found.model.nodes.values()
    silent = {probe: [r.name for r in records if not _answered(r.probe_results.get(probe))] for probe in item.probes}
    lines = [f"{probe}: no answer from {fold(nodes)}" for probe, nodes in silent.items() if nodes]
    lines += [] if item.probes else _unfinished(found)
    if lines or not records:
        return ItemOutcome.NOT_TESTED, lines or ["no node was inspected"]
    return ItemOutcome.PASS, [f"no finding of {', '.join(item.rules)} on {count(len(records), 'node')}"]


def _is_asked(item: Item, one: Finding) -> bool:
    return one.rule.id in item.rules or f"{one.rule.id}:{one.topic}" in item.rules


def _answered(value: Any) -> bool:
    return bool(value) and value.keys() != {"error"}


def _by_layer(item: Item, found: Diagnosis) -> tuple[ItemOutcome, list[str]]:
    model, layer = found.model, Layer(item.layer)
    rows = [m for m in model.measurements(layer) if not item.group_of or item.group_of in (m.src, m.dst)]
    largest = {(m.src, m.dst, m.src_addr, m.dst_addr): m for m in sorted(rows, key=lambda m: m.bytes or 0)}
    tested = [m for m in largest.values() if model.verdict(m) in _TESTED]
    if not tested:
        return ItemOutcome.NOT_TESTED, [f"{layer}: nothing was measured"]
    numbers = sorted((m.value for m in tested if m.value is not None), reverse=layer.spec.less_is_better)
    what = f"{layer}: {count(len(tested), 'result')}"
    if numbers:
        worst, middle = (spoken_text(value, tested[0].unit) for value in (numbers[0], numbers[len(numbers) // 2]))
        what += f", worst {worst}, median {middle}"
    if bad := [m for m in tested if _is_below(item, m, found)]:
        return ItemOutcome.FAIL, [
            f"{what}; {len(bad)} below the limit",
            *(f"{m.src} > {m.dst}: {model.verdict(m)}, {spoken_text(m.value or 0, m.unit)}" for m in bad),
        ]
    number = len(largest) - len(tested) + len(model.untested if layer in pair_layers() else ())
    left = [*_unfinished(found), *([f"{number} not tested"] if number else [])]
    return ItemOutcome.NOT_TESTED if left else ItemOutcome.PASS, [what, *left]


def _unfinished(found: Diagnosis) -> list[str]:
    """Return why tests between nodes may be missing altogether."""
    gone = [record.name for record in found.model.nodes.values() if record.state.gone]
    ended = [] if found.model.phase.name == "done" else [f"the session ended in {found.model.phase.name}"]
    ended += [f"{fold(gone)} not reached"] if gone else []
    return [*ended, *([] if found.model.layers else ["nothing was measured"])]


def _is_below(item: Item, m: Measurement, found: Diagnosis) -> bool:
    if found.model.verdict(m).bad or m.value is None:
        return found.model.verdict(m).bad
    usual = found.model.usual(m) if item.of_usual is not None else None
    least = max(item.least or 0.0, (usual or 0.0) * (item.of_usual or 0.0))
    return m.value < least or (item.most is not None and m.value > item.most)


def counts(judged: list[JudgedItem]) -> Iterator[str]:
    """Yield how many items have each outcome: ``3 pass``."""
    for outcome in ItemOutcome:
        if number := sum(one.outcome is outcome for one in judged):
            yield f"{number} {outcome}"

"""Acceptance of a cluster: a profile lists items with limits, and each has an outcome with its evidence.

The items are judged from a diagnosis, so that a session, a recording and a resumed session give the same page.
"""

from __future__ import annotations

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
    """ItemOutcome of an item."""

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
    """An item with its outcome and evidence: sentences."""

    item: Item
    outcome: ItemOutcome
    evidence: tuple[str, ...]


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
    if not profile.item:
        raise InputError(f"--profile: {name} has no items")
    rules = {rule.id for rule in RULES}
    for item in profile.item:
        asked = [bool(item.fact), bool(item.rules), bool(item.layer), bool(item.covered_by)]
        wrong = [rule for rule in item.rules if rule.partition(":")[0] not in rules]
        wrong += [probe for probe in item.probes if probe not in registry.PROBES]
        if sum(asked) != 1:
            raise InputError(f"--profile: {name}: item {item.id!r} needs one of fact, rules, layer and covered_by")
        if wrong:
            raise InputError(f"--profile: {name}: item {item.id!r}: there is no {wrong[0]!r}")
        if item.fact:
            expectations([f"{item.fact}=x"])
        if item.layer and item.layer not in all_layers():
            raise InputError(f"--profile: {name}: item {item.id!r}: no layer {item.layer!r}")
    if len({item.id for item in profile.item}) < len(profile.item):
        raise InputError(f"--profile: {name}: two items have the same id")
    return profile


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
    judge_item = _by_fact if item.fact else _by_rules if item.rules else _by_layer
    return JudgedItem(item, *judge_item(item, found))


def _by_fact(item: Item, found: Diagnosis) -> tuple[ItemOutcome, tuple[str, ...]]:
    table = found.preflight.table
    values: dict[str, Any] = table.values.get(item.fact) or dict.fromkeys(table.nodes)
    unit = next((fact.unit for fact in table.facts if fact.name == item.fact), "")
    unknown = [node for node, value in values.items() if value is None]
    groups: dict[str, list[str]] = {}
    for node, value in values.items():
        if value is not None:
            groups.setdefault(shown(value, unit), []).append(node)
    lines = [f"{fold(nodes)}: {text}" for text, nodes in sorted(groups.items(), key=lambda group: -len(group[1]))]
    bad = [node for node, value in values.items() if value is not None and not _holds(item, value, unit)]
    if bad or (item.same and len(groups) > 1):
        return ItemOutcome.FAIL, tuple(lines[: _MOST + 1])
    if unknown or not values:
        return ItemOutcome.NOT_TESTED, (*lines[:_MOST], f"unknown of {fold(unknown) if unknown else 'every node'}")
    return ItemOutcome.PASS, tuple(lines[:_MOST])


def _holds(item: Item, value: Any, unit: str) -> bool:
    words = {str(value).casefold(), shown(value, unit).casefold()}
    if item.equals and words.isdisjoint(map(str.casefold, item.equals)):
        return False
    if item.least is None and item.most is None:
        return True
    if not isinstance(value, (int, float)):
        return False
    return (item.least is None or value >= item.least) and (item.most is None or value <= item.most)


def _by_rules(item: Item, found: Diagnosis) -> tuple[ItemOutcome, tuple[str, ...]]:
    # A finding that is one among others of the preflight is listed there alone.
    each: list[Finding] = [*found.all_findings, *found.preflight.findings]
    mine = {(one.rule.id, one.topic, one.nodes): one for one in each if _is_asked(item, one)}
    wrong = [one for one in mine.values() if one.severity is not Severity.NOTE]
    if wrong:
        lines = [f"{one.rule.id} {one_line(placed_title(one), 300)}" for one in wrong[:_MOST]]
        return ItemOutcome.FAIL, (*lines, *([f"and {len(wrong) - _MOST} more"] if len(wrong) > _MOST else []))
    records = found.model.nodes.values()
    silent = {
        probe: [record.name for record in records if not _answered(record.probe_results.get(probe))]
        for probe in item.probes
    }
    lines = [f"{probe}: no answer from {fold(nodes)}" for probe, nodes in silent.items() if nodes]
    if lines or not records:
        return ItemOutcome.NOT_TESTED, tuple(lines) or ("no node was inspected",)
    if not item.probes and (left := _unfinished(found)):
        return ItemOutcome.NOT_TESTED, left
    return ItemOutcome.PASS, (f"no finding of {', '.join(item.rules)} on {count(len(records), 'node')}",)


def _is_asked(item: Item, one: Finding) -> bool:
    return one.rule.id in item.rules or f"{one.rule.id}:{one.topic}" in item.rules


def _answered(value: Any) -> bool:
    return bool(value) and value.keys() != {"error"}


def _by_layer(item: Item, found: Diagnosis) -> tuple[ItemOutcome, tuple[str, ...]]:
    model, layer = found.model, Layer(item.layer)
    rows = [m for m in model.measurements(layer) if not item.group_of or item.group_of in (m.src, m.dst)]
    largest = {(m.src, m.dst, m.src_addr, m.dst_addr): m for m in sorted(rows, key=lambda m: m.bytes or 0)}
    tested = [m for m in largest.values() if model.verdict(m) in _TESTED]
    if not tested:
        return ItemOutcome.NOT_TESTED, (f"{layer}: nothing was measured",)
    number = len(largest) - len(tested) + len(model.untested if layer in pair_layers() else ())
    left = (*_unfinished(found), *([f"{number} not tested"] if number else []))
    bad = [m for m in tested if _is_below(item, m, found)]
    numbers = sorted(m.value for m in tested if m.value is not None)
    worst = (numbers[-1] if layer.spec.less_is_better else numbers[0]) if numbers else None
    what = f"{layer}: {count(len(tested), 'result')}"
    if worst is not None:
        middle = numbers[len(numbers) // 2]
        what += f", worst {spoken_text(worst, tested[0].unit)}, median {spoken_text(middle, tested[0].unit)}"
    if bad:
        named = [f"{m.src} > {m.dst}: {model.verdict(m)}{_value(m)}" for m in bad[:_MOST]]
        more = [f"and {len(bad) - _MOST} more"] if len(bad) > _MOST else []
        return ItemOutcome.FAIL, (f"{what}; {len(bad)} below the limit", *named, *more)
    return ItemOutcome.NOT_TESTED if left else ItemOutcome.PASS, (what, *left)


def _unfinished(found: Diagnosis) -> tuple[str, ...]:
    """Return why tests between nodes may be missing altogether."""
    gone = [record.name for record in found.model.nodes.values() if record.state.gone]
    ended = [] if found.model.phase.name == "done" else [f"the session ended in {found.model.phase.name}"]
    ended += [f"{fold(gone)} not reached"] if gone else []
    return (*ended, *([] if found.model.layers else ["nothing was measured"]))


def _is_below(item: Item, m: Measurement, found: Diagnosis) -> bool:
    if found.model.verdict(m).bad:
        return True
    if m.value is None:
        return False
    usual = found.model.usual(m) if item.of_usual is not None else None
    low = item.least is not None and m.value < item.least
    high = item.most is not None and m.value > item.most
    return low or high or (usual is not None and m.value < usual * (item.of_usual or 0))


def _value(m: Measurement) -> str:
    return f", {spoken_text(m.value, m.unit)}" if m.value is not None else ""


def counts(judged: list[JudgedItem]) -> Iterator[str]:
    """Yield how many items have each outcome: ``3 pass``."""
    for outcome in ItemOutcome:
        if number := sum(one.outcome is outcome for one in judged):
            yield f"{number} {outcome}"

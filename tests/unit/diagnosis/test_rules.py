"""Rules: ids are unique and documented, and a rule is one declaration away from every front end."""

import re
from collections.abc import Iterator

import pytest

from fabtui.diagnosis import finding
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.diagnosis.finding import Domain, Finding, Rule, Severity
from fabtui.diagnosis.pairs.pair_context import PairContext
from fabtui.diagnosis.preflight.checks import preflight
from fabtui.diagnosis.preflight.node_context import NodeContext, NodeRule
from fabtui.export.json import as_json
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import Glyphs
from fabtui.presentation.findings import evidence, title
from fabtui.presentation.wording import plain
from fabtui.report.preflight import preflight_text
from fabtui.report.summary import summary
from fabtui.screen.session_diagnosis import SessionDiagnosis
from fabtui.screen.widgets.finding_lines import finding_block, summary_lines
from tests.unit.diagnosis.test_pair_rules import dead_if, fabric
from tests.unit.test_reference import reference_page


@pytest.fixture(autouse=True)
def rules() -> Iterator[list[Rule[object]]]:
    yield finding.RULES
    finding.RULES[:] = [rule for rule in finding.RULES if type(rule).__module__ != __name__]


def test_every_rule_is_documented(rules: list[Rule[object]]) -> None:
    assert len(rules) > 30
    assert len({rule.id for rule in rules}) == len({rule.name for rule in rules}) == len(rules)
    for rule in rules:
        assert re.fullmatch(r"FT[0-9]{3}|J[0-9]{2}", rule.id)
        assert re.fullmatch(r"[a-z0-9-]+", rule.name)
        assert rule.title
        assert rule.description.endswith("."), rule.id
        assert rule.severity in list(Severity)
        assert rule.domain in list(Domain)
        assert rule.next_step or rule.severity is Severity.NOTE, rule.id


class OddLuck(Rule[PairContext]):
    """Thirteen endpoints or fewer take part."""

    id = "FT913"
    name = "odd-luck"
    title = "Few endpoints"
    severity = Severity.WARN
    message = "only {endpoints} endpoints[, at {place}]"
    evidence = ("the first is {first}", "the last is {last}")
    next_step = "Buy more."

    def check(self, context: PairContext) -> Iterator[Finding]:
        ends = [str(end) for end in context.model.endpoints]
        facts = {"endpoints": len(ends), "first": ends[0]}
        yield self.finding("luck", cells=[(ends[0], ends[1])], facts=facts, commands=("buy gpus",))


def test_a_rule_is_one_declaration(rules: list[Rule[object]]) -> None:
    finding.register(OddLuck)
    model = fabric("ab", 2, dead_if(lambda s, d: False))
    (found,) = diagnose(model).findings
    assert (title(found), evidence(found)) == ("only 4 endpoints", ("the first is a:0",))

    screen = SessionDiagnosis(model)
    while screen.step(1.0):
        pass
    panel = [plain(line) for line, _ in summary_lines(screen, None, 60, 20, Glyphs(plain=True))]
    assert panel[0].startswith(" 1 only 4 endpoints")
    assert panel[1] == "   The first is a:0."
    view = [plain(line) for line in finding_block(screen.found[0], 100, 1)]
    assert any("next    buy gpus" in line for line in view)

    two = found.replace(cells=frozenset({("a:0", "a:1"), ("a:0", "b:1")}))
    OddLuck.check = lambda self, context: iter([two])  # type: ignore[method-assign]
    assert "findings: 1\n  1 only 4 endpoints (2 pairs)  FT913\n" in summary(diagnose(model), plain=True)
    (written,) = as_json(diagnose(model))["findings"]
    assert (written["id"], written["rule"], written["severity"]) == ("FT913", "odd-luck", "warn")
    assert written["facts"] == {"endpoints": 4, "first": "a:0"}
    assert rules[-1].description == "Thirteen endpoints or fewer take part."
    assert "Thirteen endpoints or fewer take part." in reference_page("rules")


class NoNodes(NodeRule):
    id = "FT914"
    name = "nodes"
    title = "There are nodes"
    message = "nodes {all}"

    def check(self, context: NodeContext) -> Iterator[Finding]:
        yield self.finding("nodes", nodes=("a",), facts={"all": tuple(context.model.nodes)})


def test_a_rule_about_nodes_is_in_the_preflight_and_in_the_session() -> None:
    finding.register(NoNodes)
    model = fabric("ab", 2, dead_if(lambda s, d: False))
    found = preflight(model)
    text = preflight_text(model, found, None, "", 80, everything=False, ascii_only=True, color=False)
    assert "x a  nodes a, b" in text
    assert [one["id"] for one in as_json(diagnose(model))["preflight"]] == ["FT914"]
    assert [title(one) for one in diagnose(model).findings] == ["nodes a, b"]


def test_text_from_nodes_is_no_template() -> None:
    rule = OddLuck()
    hostile = rule.finding(facts={"endpoints": 1, "place": "{endpoints.__class__}[x]", "first": "\x1b[2J{last}"})
    assert title(hostile) == "only 1 endpoints, at {endpoints.__class__}[x]"
    assert evidence(hostile) == ("the first is [2J{last}",)


def test_no_findings_without_anything() -> None:
    assert diagnose(Model()).findings == []

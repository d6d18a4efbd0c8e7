import ast
import functools
import re
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fabtui.diagnosis import diagnosis, finding
from fabtui.diagnosis.finding import Direction, Route, Rule
from fabtui.diagnosis.mesh.affected_components import ComponentKind
from fabtui.diagnosis.mesh.mesh import ScopeFact
from fabtui.history import rules as history_rules
from fabtui.model.measurement import Reduced
from fabtui.presentation import findings as texts

SCOPE = ScopeFact(ComponentKind.ACROSS, ("n0", "n1"), (0, 1), "", "both", (), False, 1, True, True)
SAMPLES: dict[str, Any] = {
    **dict.fromkeys(("subject", "between", "where", "senders", "unreachable", "usual_cause"), SCOPE),
    **{"rails": Route(0, 1, True), "arrow": Route("n0:0", "n1:0", False), "one_way": Direction.SENDS},
    **{"lines": ["one"], "devices": ["mlx5_0"], "percent_range": (1.0, 2.0)},
    "reduced": Reduced(1 << 20, 1 << 28, 43.0),
}


def templates(rule: Rule[Any]) -> Iterator[tuple[str, str]]:
    for template in (rule.message, *rule.evidence):
        for section in re.split(r"[\[\]]", template):
            yield from ((name, spec or "") for _, name, spec, _ in string.Formatter().parse(section) if name)


@functools.cache
def facts_of_rules() -> frozenset[str]:
    """Return the names of all facts that the diagnosis gives to a finding: keys of literals, keywords and fields."""
    # The kind of a component is a fact as well.
    found = {kind.replace("-", "_") for kind in finding.Kind}
    for path in [*Path(diagnosis.__file__).parent.rglob("*.py"), Path(history_rules.__file__)]:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Dict(keys=keys):
                    every = (one for key in keys if key is not None for one in ast.walk(key))
                    found |= {str(one.value) for one in every if isinstance(one, ast.Constant)}
                case ast.Call(keywords=keywords):
                    found |= {one.arg for one in keywords if one.arg}
                case ast.Subscript(slice=ast.Constant(value=str() as name), ctx=ast.Store()):
                    found.add(name)
                case ast.AnnAssign(target=ast.Name(id=name)):
                    found.add(name)
    return frozenset(found)


def test_a_template_needs_only_facts_that_rules_state() -> None:
    # A line whose fact is missing is left out, so that a misspelt one would never be seen.
    needed = {rule.id: {name for name, _ in templates(rule)} - facts_of_rules() for rule in diagnosis.RULES}
    assert {rule: names for rule, names in needed.items() if names} == {}


def test_with_all_its_facts_every_template_is_shown() -> None:
    for rule in diagnosis.RULES:
        facts = {
            name: SAMPLES.get(spec, 1.5 if spec[:1] in (".", "p", "v", "u") else 2) for name, spec in templates(rule)
        }
        for template in (rule.message, *rule.evidence):
            assert texts.rendered(template, facts) is not None, (rule.id, template)

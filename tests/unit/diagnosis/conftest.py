"""A check of every finding that a test of the diagnosis makes: its first command is for what it blames."""

from collections.abc import Iterable, Iterator

import pytest

from fabtui.diagnosis.finding import Finding
from fabtui.diagnosis.knowledge.next_commands import host_of
from fabtui.diagnosis.merge_findings import in_order
from fabtui.model.session_model import Model
from fabtui.presentation.findings import placed_title


@pytest.fixture(autouse=True)
def _first_commands_are_for_the_blamed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    innocent: dict[str, str] = {}

    def checked(model: Model, found: Iterable[Finding]) -> list[Finding]:
        ordered = in_order(model, found)
        for one in ordered:
            host = host_of(one.next[0]) if one.next else ""
            if host and one.blamed_nodes and host not in one.blamed_nodes:
                innocent[placed_title(one)] = one.next[0]
        return ordered

    monkeypatch.setattr("fabtui.diagnosis.diagnosis.in_order", checked)
    yield
    assert not innocent

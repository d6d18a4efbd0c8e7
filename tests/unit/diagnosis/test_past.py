"""Past trouble of a session: one finding for intervals that have a time and a component in common."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.exit_status import ALL_OK, BAD
from fabtui.export.json import as_json
from fabtui.model.endpoints import Endpoint
from fabtui.model.events import (
    EndpointsAdded,
    Event,
    Incident,
    Measured,
    NodeState,
    NodeUpdate,
    PairsStarted,
    PhaseStart,
    SessionStart,
    event_from_line,
)
from fabtui.model.interval_log import Interval, IntervalKind
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.findings import evidence, title
from fabtui.presentation.verdict_line import sentence_of

NODES = ("h0", "h1", "h2", "h3")
ENDS = tuple(f"{node}:{rank}" for node in NODES for rank in (0, 1))
#: Noon of a day in UTC.
NOON = 1_790_000_000 - 1_790_000_000 % 86400 + 43200.0


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.presentation.wording.time.localtime", __import__("time").gmtime)


class Session:
    """A session of four nodes of two endpoints each, all of whose pairs passed; its events are kept."""

    def __init__(
        self, *, nodes: tuple[str, ...] = NODES, later: Iterable[tuple[str, str]] = (), **options: object
    ) -> None:
        self.model, self.events, self.nodes = Model(), list[Event](), nodes
        self.apply(0.0, SessionStart(nodes=list(nodes), options={"probes": ["p2p"], **options}))
        for node in nodes:
            self.apply(0.0, NodeUpdate(node=node, state=NodeState.READY))
        ends = [Endpoint(2 * at + rank, node, rank) for at, node in enumerate(nodes) for rank in (0, 1)]
        self.apply(0.0, EndpointsAdded(endpoints=ends))
        self.apply(0.0, PhaseStart(name="p2p", total=len(ends)))
        self.all = list(itertools.permutations(map(str, ends), 2))
        self.measured(1.0, [pair for pair in self.all if pair not in later])

    def apply(self, at: float, event: Event) -> None:
        event.time = NOON + at
        self.events.append(event)
        self.model.apply(event)

    def measured(
        self,
        at: float,
        pairs: Iterable[tuple[str, str]],
        verdict: Verdict = Verdict.OK,
        began: float | None = None,
        layer: Layer = Layer.P2P,
    ) -> None:
        pairs = list(pairs)
        if began is not None:
            self.apply(began, PairsStarted(pairs=pairs))
        value, error = (40.0, None) if verdict is Verdict.OK else (None, "no")
        rows = [
            Measurement(layer, src, dst, verdict, value, "GB/s", 1 << 20, NOON + at, error=error) for src, dst in pairs
        ]
        self.apply(at, Measured(measurements=rows))

    def over(self) -> None:
        self.apply(100.0, PhaseStart(name="done"))

    def titles(self) -> list[str]:
        self.over()
        return [title(one) for one in diagnose(self.model).findings]

    def of(self, *names: str) -> list[tuple[str, str]]:
        between = [pair for pair in self.all if pair[0][:2] != pair[1][:2]]
        return [pair for pair in between if any(end in names or end[:2] in names for end in pair)]


def fail(session: Session, pairs: list[tuple[str, str]]) -> None:
    session.measured(15.0, pairs[: len(pairs) // 2], Verdict.TIMEOUT, began=10.0)
    session.measured(22.0, pairs[len(pairs) // 2 :], Verdict.TIMEOUT, began=15.0)
    session.measured(40.0, pairs)


def test_what_failed_for_a_time_and_passes_is_one_sentence_about_what_it_has_in_common() -> None:
    session = Session()
    fail(session, session.of("h3")[:6])
    assert session.titles() == ["6 pairs with h3 timed out between 12:00:10 and 12:00:22 and pass now"]
    found = diagnose(session.model)
    assert sentence_of(found) == (
        "All 56 GPU pairs are ok; warning: 6 pairs with h3 timed out between 12:00:10 and 12:00:22 and pass now"
    )
    assert found.code == ALL_OK
    (past,) = as_json(found)["past"]
    assert (past["subject"], past["nodes"]) == ({"kind": "node", "name": "h3"}, ["h3"])
    assert past["from"][10:] == "T12:00:10.000Z"
    assert past["to"][10:] == "T12:00:22.000Z"
    assert past["passes_now"] is past["start_seen"] is True
    assert len(past["pairs"]) == 6


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (("h3:1",), "12 pairs with h3:1 timed out"),
        (("h3",), "24 pairs with h3 timed out"),
    ],
)
def test_the_component_is_the_narrowest_that_explains_them(names: tuple[str, ...], what: str) -> None:
    session = Session()
    fail(session, session.of(*names))
    assert session.titles()[0].startswith(what)


def test_pairs_between_two_nodes_and_single_pairs() -> None:
    session = Session()
    fail(session, [pair for pair in session.of("h1") if {pair[0][:2], pair[1][:2]} == {"h1", "h3"}])
    assert session.titles() == ["8 pairs of h1 and h3 timed out between 12:00:10 and 12:00:22 and pass now"]
    pairs = [("h0:0", "h3:1"), ("h3:1", "h0:0")]
    session = Session(later=pairs)
    session.model.intervals.add(IntervalKind.RANK_HOST, "h9", NOON, NOON, "of a node that is not known")
    fail(session, pairs)
    assert session.titles() == ["h0:0 - h3:1 timed out between 12:00:10 and 12:00:22 and passes now"]
    session = Session()
    session.measured(15.0, [("h0:0", "h3:1")], Verdict.FAILED, began=10.0)
    session.measured(16.0, [("h0:0", "h3:1")], Verdict.TIMEOUT, began=15.0)
    session.measured(40.0, [("h0:0", "h3:1")])
    assert session.titles() == ["h0:0 > h3:1 failed between 12:00:10 and 12:00:16 and passes now"]
    session.measured(50.0, [("h0:0", "h3:1")], Verdict.TIMEOUT, began=46.0)
    session.measured(60.0, [("h0:0", "h3:1")])
    assert session.titles() == ["h0:0 > h3:1 flaps in p2p"], "twice"


def test_what_fails_still_is_not_past_and_two_times_are_two_events() -> None:
    session = Session()
    pairs = session.of("h3:1")
    fail(session, pairs)
    session.measured(60.0, pairs, Verdict.FAILED)
    session.over()
    assert diagnose(session.model).past == []
    session.measured(70.0, pairs)
    assert session.titles()[:2] == [
        "12 pairs with h3:1 timed out between 12:00:10 and 12:00:22 and pass now",
        "12 pairs with h3:1 failed at 12:01:00 and pass now",
    ]


def test_the_exit_code_is_asked_for() -> None:
    session = Session(fail_on_past=True)
    session.over()
    assert diagnose(session.model).code == ALL_OK
    fail(session, session.of("h3"))
    session.over()
    assert diagnose(session.model).code == BAD
    assert sentence_of(diagnose(session.model)).startswith("24 pairs with h3 timed out between ")


def test_a_node_that_was_gone_explains_what_failed_meanwhile_and_counts_from_its_last_sign() -> None:
    session = Session()
    session.apply(20.0, NodeUpdate(node="h2", state=NodeState.LOST, text="no answer for 10 s", silent=10.0))
    session.measured(20.5, session.of("h2"), Verdict.FAILED, began=9.0)
    session.apply(24.0, NodeUpdate(node="h2", state=NodeState.CONNECTED))
    session.apply(27.0, NodeUpdate(node="h2", state=NodeState.READY))
    session.measured(40.0, session.of("h2"))
    session.over()
    (one,) = diagnose(session.model).findings
    assert (one.rule.id, title(one)) == ("FT001", "h2 was gone for 14 s, and is back")
    assert evidence(one) == ("no answer for 10 s", "24 pairs failed meanwhile, and pass now")
    (past,) = as_json(diagnose(session.model))["past"]
    assert past["from"][10:] == "T12:00:10.000Z"


def test_a_start_that_nobody_saw_is_reported_as_earlier() -> None:
    session = Session()
    session.apply(20.0, NodeUpdate(node="h2", state=NodeState.LOST, text="no answer for 10 s"))
    session.apply(24.0, NodeUpdate(node="h2", state=NodeState.READY))
    assert session.titles() == ["h2 was gone for at least 4 s, and is back"]


@pytest.mark.parametrize("kind", ["gone", "silent"])
def test_all_nodes_at_once_are_this_machine(kind: str) -> None:
    session = Session()
    for at, node in enumerate(NODES):
        if kind == "gone":
            session.apply(20.0 + at / 10, NodeUpdate(node=node, state=NodeState.LOST, text=f"{node} x", silent=10.0))
        else:
            session.apply(20.0 + at / 10, Incident(node=node, what="silence", since=NOON + 10.0, text="nothing"))
    for at, node in enumerate(NODES):
        session.apply(22.0 + at / 10, NodeUpdate(node=node, state=NodeState.READY))
    (one,) = session.titles()
    assert "h[0-3] w" in one
    assert "this machine, or its link" in one
    assert diagnose(session.model).findings[0].next == ("ip -s link",)


def test_processes_that_were_stopped() -> None:
    session = Session()
    text = "its processes were stopped, or got no processor"
    session.apply(18.0, Incident(node="h2", what="silence", since=NOON + 10.0, text=text))
    session.measured(19.0, session.of("h2:0"), Verdict.TIMEOUT, began=9.0)
    session.measured(40.0, session.of("h2:0"))
    assert session.titles() == [f"h2 was silent for 8 s between 12:00:10 and 12:00:18: {text}"]
    (one,) = diagnose(session.model).findings
    assert evidence(one) == ("12 pairs failed meanwhile, and pass now",)


def test_a_rank_host_that_ended_unless_something_else_explains_it() -> None:
    session = Session()
    end = Incident(node="h2", what="rank-host", since=NOON + 20.0, text="the rank host of h2 ended with signal 9: x")
    session.apply(20.0, end)
    assert session.titles() == ["the rank host of h2 ended with signal 9 at 12:00:20, and ranks were started again"]
    # What ended it is still there.
    session = Session()
    session.apply(20.0, end)
    session.measured(40.0, [("h2:0", "h0:0")], Verdict.FAILED)
    assert all("rank host of h2 ended" not in one for one in session.titles())
    session.apply(41.0, Incident(node="h2", what="flood", since=NOON, text="unknown kinds are ignored"))
    assert diagnose(session.model).past == []


def test_pairs_that_failed_once_together_do_not_flap() -> None:
    session = Session()
    fail(session, session.of("h3"))
    assert session.model.results.flapping, "each alone turned twice"
    assert [one for one in session.titles() if "flap" in one] == []


def test_two_nodes_have_everything_in_common() -> None:
    session = Session(nodes=("h0", "h1"))
    fail(session, session.of("h1"))
    assert all(" with h1 " not in one for one in session.titles())


def test_collectives_that_pass_again() -> None:
    session = Session()
    pairs = [pair for pair in itertools.combinations(NODES, 2) if "h2" in pair]
    session.measured(20.0, pairs, Verdict.FAILED, layer=Layer.BUSBW)
    session.measured(40.0, pairs, layer=Layer.BUSBW)
    assert session.titles() == ["3 all_reduce with h2 failed at 12:00:20 and pass now"]


def test_a_recording_that_replays_has_the_same_past(tmp_path: Path) -> None:
    session = Session()
    fail(session, session.of("h3"))
    session.apply(18.0, Incident(node="h2", what="silence", since=NOON + 10.0, text="nothing came through"))
    session.apply(60.0, NodeUpdate(node="h1", state=NodeState.LOST, text="Connection lost", silent=0.5))
    session.apply(70.0, NodeUpdate(node="h1", state=NodeState.READY))
    session.over()
    again = Model()
    for event in session.events:
        again.apply(event_from_line(json.dumps(event.to_json()).encode()))
    assert list(again.intervals.ended) == list(session.model.intervals.ended)
    assert as_json(diagnose(again))["past"] == as_json(diagnose(session.model))["past"] != []


def test_a_conclusion_about_a_pair_goes_when_it_passes() -> None:
    session = Session()
    session.measured(15.0, [("h0:0", "h3:1")], Verdict.FAILED)
    session.model.suspects["h0:0", "h3:1"] = "the path between them is at fault"
    session.measured(40.0, [("h0:0", "h3:1")])
    assert session.model.suspects == {}


def test_an_interval_begins_with_its_first_test_and_older_attempts_than_known_are_not_seen() -> None:
    session = Session()
    pair = [("h0:0", "h3:1")]
    for at in range(80):
        session.measured(10.0 + at, pair, Verdict.TIMEOUT, began=8.0 + at)
    session.measured(95.0, pair)
    (one,) = session.model.intervals.ended
    assert isinstance(one, Interval)
    assert (one.kind, one.until - NOON, one.start_seen) == (IntervalKind.RESULT, 89.0, False)


def test_what_failed_where_something_is_bad_still_is_a_part_of_that() -> None:
    session = Session()
    fail(session, session.of("h3:0"))
    session.measured(60.0, [pair for pair in session.all if "h3:1" in pair], Verdict.FAILED)
    session.over()
    assert diagnose(session.model).past == []
    session = Session()
    fail(session, session.of("h0:0"))
    session.measured(60.0, [pair for pair in session.all if "h3:1" in pair], Verdict.FAILED)
    session.over()
    assert len(diagnose(session.model).past) == 1, "of another node"

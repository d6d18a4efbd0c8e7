"""Changed cells that the model reports to a reader."""

from fabtui.model.endpoints import PairClass
from fabtui.model.events import NodeState
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from tests.screen.fakefeed import Story


def story_of_two() -> tuple[Story, Model]:
    story = Story(["a", "b"], 2)
    for node in ("a", "b"):
        story.connect(node)
    story.endpoints("a", "b")
    story.phase("p2p", 12)
    return story, story.shadow


def test_nothing_is_collected_before_someone_reads() -> None:
    story, model = story_of_two()
    story.measured(*story.good("a:0", "b:1"))
    assert model.drain_changes() is None
    assert model.drain_changes() == set()


def test_a_measured_pair_is_one_changed_cell() -> None:
    story, model = story_of_two()
    model.drain_changes()
    story.running(("a:0", "b:1"), ("b:1", "a:0"))
    assert model.drain_changes() == {(0, 3), (3, 0)}
    story.measured(*story.good("a:0", "b:1"))
    assert model.drain_changes() == {(0, 3)}


def test_what_is_measured_between_nodes_changes_all_their_cells() -> None:
    story, model = story_of_two()
    model.drain_changes()
    story.busbw(["a", "b"])
    assert model.drain_changes() == {(a, b) for a in (0, 1) for b in (2, 3)} | {(b, a) for a in (0, 1) for b in (2, 3)}
    story.measured(Measurement(Layer.BUSBW, "all", "all", Verdict.OK, 3.0, "GB/s"))
    assert model.drain_changes() == set()


def test_a_node_that_goes_and_endpoints_that_come_may_change_everything() -> None:
    story, model = story_of_two()
    model.drain_changes()
    story.state("b", NodeState.LOST, "cut")
    assert model.drain_changes() is None
    story.endpoints("c")
    assert model.drain_changes() is None


def test_cells_under_test_change_when_the_phase_does() -> None:
    story, model = story_of_two()
    story.running(("a:0", "a:1"))
    model.drain_changes()
    story.phase("all_reduce", 1)
    assert model.drain_changes() == {(0, 1)}


def test_latency_and_ping_have_medians_but_are_never_slow() -> None:
    story, model = story_of_two()
    for src, dst in story.ordered_pairs():
        story.measured(*story.good(src, dst))
    story.pings(["a", "b"])
    assert model.median(Layer.LATENCY, PairClass.SAME_NODE) is not None
    ping = model.median(Layer.PING, PairClass.SAME_RAIL)
    assert ping is not None
    late = Measurement(Layer.LATENCY, "a:0", "a:1", Verdict.OK, 9999.0, "us")
    story.measured(late)
    assert model.verdict(late) is Verdict.OK
    story.measured(Measurement(Layer.PING, "a", "b", Verdict.TIMEOUT, None, "ms", src_addr="x", dst_addr="y"))
    assert model.median(Layer.PING, PairClass.SAME_RAIL) == ping

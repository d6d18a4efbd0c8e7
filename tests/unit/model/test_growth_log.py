"""Growth of counters by phase: what nodes report is not trusted, and what is over is dropped."""

import numpy as np

from fabtui.model.events import NodeGrowth, PhaseStart, SessionStart
from fabtui.model.growth_log import GrowthLog, cleaned, counter_names
from fabtui.model.session_model import Model


def test_growth_of_a_phase_is_added_up_by_node() -> None:
    log = GrowthLog()
    log.take("a", "p2p", 2.0, {"TcpRetransSegs": 3}, [])
    log.take("b", "p2p", 1.0, {"eth0:rx_dropped": 1}, [])
    log.take("a", "p2p", 1.0, {"TcpRetransSegs": 2, "new": 1}, [])
    growth = log.phases["p2p"]
    assert growth.seconds == {"a": 3.0, "b": 1.0}
    names, table = growth.table(log.gauges)
    assert names == ["TcpRetransSegs", "eth0:rx_dropped", "new"]
    assert np.array_equal(table, [[5, 0], [0, 1], [1, 0]])
    log.take("b", "p2p", 1.0, {}, ["new"])
    assert growth.table(log.gauges)[0] == ["TcpRetransSegs", "eth0:rx_dropped"], "it fell: a gauge"


def test_what_is_no_counter_is_ignored() -> None:
    odd = {
        "a b": 1,
        "-x": 1,
        "\x1b": 1,
        "ok": 1,
        "zero": 0,
        "less": -1,
        "true": True,
        "text": "1",
        "huge": 1 << 62,
        7: 1,
    }
    assert cleaned({**odd, "x" * 97: 1}) == {"ok": 1}
    assert cleaned([1]) == cleaned(None) == {}
    assert counter_names(["a", 7, "b c", None]) == ["a"]
    assert counter_names("abc") == []
    log = GrowthLog()
    log.take("a", "p2p", float("nan"), {"x": 1}, [])
    log.take("a", "p2p", -1.0, {"x": 1}, [])
    assert not log.phases
    for number in range(100):
        log.take("a", f"phase {number}", 1.0, {"x": 1}, [])
    assert len(log.phases) == 16


def test_a_sweep_forgets_the_one_before_and_a_round_of_watching_replaces_the_one_before() -> None:
    model = Model()
    model.apply(SessionStart(nodes=["a", "b"], time=1.0))
    for phase in ("p2p", "watch"):
        for count in (1, 2):
            for node in "ab":
                model.apply(NodeGrowth(node=node, phase=phase, seconds=1.0, grew={"x": count}))
    tables = {phase: growth.table(set())[1].tolist() for phase, growth in model.growth.phases.items()}
    assert tables == {"p2p": [[3.0, 3.0]], "watch": [[2.0, 2.0]]}
    model.apply(PhaseStart(name="look", total=0, time=2.0))
    assert not model.growth.phases

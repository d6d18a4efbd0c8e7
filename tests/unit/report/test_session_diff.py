"""Text of ``fabtui diff``: folded nodes, capped, one table per status."""

import itertools

from fabtui.diagnosis.session_diff import session_diff
from fabtui.model.events import Measured
from fabtui.model.layers import Layer
from fabtui.model.measurement import Measurement, Verdict
from fabtui.model.session_model import Model
from fabtui.presentation.cell_levels import ASCII
from fabtui.report.session_diff import diff_text, session_text
from tests.conftest import session_of

NODES = [f"n{number:03}" for number in range(6)]


def fabric(bad: dict[tuple[str, str], float] | None = None, note: str = "", size: int = 1 << 28) -> Model:
    """Six nodes with two endpoints each; ``bad`` has the values of pairs by the beginnings of their ends."""
    model = session_of(NODES, 2)
    for a, b in itertools.permutations(map(str, model.endpoints), 2):
        keys = [v for (src, dst), v in (bad or {}).items() if a.startswith(src) and b.startswith(dst)]
        value = keys[0] if keys else 50.0
        verdict = Verdict.OK if value else Verdict.FAILED
        error = None if value else f"no route{note}"
        one = Measurement(Layer.P2P, a, b, verdict, value or None, "GB/s", size, 2.0, error=error)
        model.apply(Measured(measurements=[one], time=2.0))
    return model


def text(then: Model, now: Model) -> str:
    sessions = (session_text("a.csv", then), session_text("b.csv", now))
    return diff_text(("a.csv", "b.csv"), sessions, session_diff(then, now), 120, ASCII)


def rows(found: str) -> list[str]:
    return [" ".join(line.split()) for line in found.splitlines() if line.strip().startswith("p2p")]


def test_a_node_that_reaches_no_other_is_two_rows() -> None:
    found = text(fabric(), fabric({("n003", ""): 0.0, ("", "n003"): 0.0}))
    assert "worse: 42 pairs" in found
    assert rows(found)[1:4] == [
        "p2p n[000-002,004-005] > n003 20 pairs 50.0 GB/s failed",
        "p2p n003 > n[000-002,004-005] 20 pairs 50.0 GB/s failed",
        "p2p within n003 2 pairs 50.0 GB/s failed",
    ]
    assert "new findings" in found
    assert found.startswith("Something is worse: 42 pairs broke, 1 finding is new.\n")


def test_a_single_end_is_named() -> None:
    found = text(fabric(), fabric({("n001:1", ""): 5.0, ("n000:0", "n000:1"): 20.0}))
    assert rows(found)[1:4] == [
        "p2p n001:1 > n[000,002-005] 10 pairs 50.0 GB/s slow 5.00 GB/s 0.10 x",
        "p2p n001:1 > n001:0 50.0 GB/s slow 5.00 GB/s 0.10 x",
        "p2p n000:0 > n000:1 50.0 GB/s slow 20.0 GB/s 0.40 x",
    ]


def test_repairs_and_breaks_stand_before_values_that_changed() -> None:
    broken = fabric({("n000:0", "n001:0"): 0.0, ("n000:0", "n002:0"): 5.0})
    found = text(broken, fabric({("n003:0", "n004:0"): 0.0, ("n005:0", "n001:1"): 80.0}))
    first, then, *_ = found.splitlines()
    assert first == "Something is worse: 1 pair broke, 2 pairs were repaired, 1 finding is new, 2 findings are gone."
    assert "): 2 of 132 tested GPU pairs are bad: n000:0 > n001:0 failed" in then
    heads = [line.partition(":")[0] for line in found.splitlines() if line.startswith(("worse", "better", "findings"))]
    assert heads == ["worse", "better", "findings that are gone", "better values"]


def test_equal_sessions() -> None:
    found = text(fabric(), fabric())
    assert found.startswith("Nothing is worse.\nthen: a.csv (")
    assert "\npairs: all the same: p2p (132)\n" in found
    assert "findings" not in found


def test_values_that_fell_are_worse_though_a_pair_was_repaired_and_files_are_taken_in_their_order() -> None:
    then, now = fabric({("n000:0", "n001:0"): 0.0, ("n002:0", "n003:0"): 80.0}), fabric()
    then.started, now.started = 20.0, 10.0
    first, second, *_ = text(then, now).splitlines()
    assert first == "The first file is the later session: swap them to see what changed since."
    assert second == "Something is worse: 1 pair has a worse result, 1 pair was repaired, 1 finding is gone."


def test_what_limits_the_comparison_is_the_first_line() -> None:
    first, then, *_ = text(fabric({("n003", "n004"): 0.0}), fabric(size=1 << 20)).splitlines()
    assert first == "Values are hardly comparable: other message sizes (256 MiB then, 1 MiB now)."
    assert then == "Nothing is worse: 4 pairs were repaired, 1 finding is gone."


def test_many_rows_are_capped() -> None:
    values = {(f"{a}:0", f"{b}:1"): 2.0 ** -(at % 30) for at, (a, b) in enumerate((a, b) for a in NODES for b in NODES)}
    found = text(fabric(), fabric(values))
    assert "more rows; --csv and --json have them all" in found


def test_hostile_text_does_not_reach_the_terminal() -> None:
    found = text(fabric(), fabric({("n003", ""): 0.0}, "\x1b[2J\u202e"))
    assert "\x1b" not in found
    assert found.isascii()

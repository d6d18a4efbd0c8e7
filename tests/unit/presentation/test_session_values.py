"""Values that a healthy session and a watching one show."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fabtui.history.file import usual_name
from fabtui.importers.session import replayed
from fabtui.model.endpoints import PairClass
from fabtui.model.layers import Layer
from fabtui.paths import shipped_recordings_folder
from fabtui.presentation.cell_levels import UNICODE
from fabtui.presentation.session_values import column_lines, healthy_lines, session_values, watch_lines
from fabtui.presentation.wording import plain


class _Past:
    findings: tuple[Any, ...] = ()
    overview: Any = None

    def __init__(self, name: str, value: float) -> None:
        self.usual: Mapping[str, tuple[float, float]] = MappingProxyType({name: (1_790_000_000.0, value)})

    def about(self, model: Any, finding: Any) -> None: ...


def test_a_healthy_session_names_what_it_proved_its_ranges_and_the_last_session() -> None:
    model, _ = replayed(shipped_recordings_folder() / "h200x4-lab-2x2.jsonl.gz")
    model.past = _Past(usual_name(model, Layer.P2P, PairClass.SAME_NODE), 400.0)
    values = session_values(model)
    assert values is not None
    lines = [plain(line) for line in healthy_lines(model, values, 200, keys=True)]
    assert lines[0] == "PROVEN    12 pairs, each way; 8 over NET/Socket, 4 over P2P/direct pointer; all_reduce 300 GB/s"
    assert lines[1].startswith("RANGE     same node 359 to 360 GB/s; same rail 2.69 to 3.11 GB/s; cross rail 2.65 to ")
    assert lines[2].startswith("AGAINST   the session of ")
    assert lines[2].endswith(": same node 90 %")
    assert lines[3].startswith("NEXT      w keeps watching")
    column = [plain(line) for line in column_lines(model, values, [], (50, 30), UNICODE)]
    assert column[1].split() == ["86", "%", "n001:1", ">", "n000:0", "2.65", "GB/s"]
    assert "LOG" in column
    assert max(map(len, column)) <= 50
    watching = [plain(line) for line in watch_lines(model, values, model.now + 2, 60, UNICODE)]
    assert [line.split("  ")[0] for line in watching] == ["retested", "slowest", "went bad"]
    assert watching[1].startswith("slowest   n001:1 > n000:0  86 % of usual")

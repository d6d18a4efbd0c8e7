"""Rank hosts that the kernel kills for lack of memory."""

from __future__ import annotations

from pathlib import Path

from fabtui.diagnosis.knowledge.error_catalogue import meaning_of
from fabtui.session.ranks.rank_host import exit_reason
from fabtui_node.runtime.supervisor import oom_kills


def test_the_kernels_count_of_killed_processes(tmp_path: Path) -> None:
    file = tmp_path / "vmstat"
    file.write_text("nr_free_pages 7\noom_kill 3\nswap_ra 0\n")
    assert oom_kills(str(file)) == 3
    file.write_text("nr_free_pages 7\n")
    assert oom_kills(str(file)) is None, "before Linux 4.13"
    assert oom_kills(str(tmp_path / "none")) is None


def test_the_reason_takes_the_place_of_what_was_printed_last() -> None:
    ended = {"signal": 9, "code": None, "stderr": "a line\n", "why": "out of memory: oom_kill 4 in /proc/vmstat"}
    assert exit_reason("h2", ended)[0] == (
        "the rank host of h2 ended with signal 9: out of memory: oom_kill 4 in /proc/vmstat"
    )


def test_a_crash_is_not_taken_for_a_lack_of_memory() -> None:
    for signal, name in ((11, "rank-host-crashed"), (9, "ranks-killed")):
        found = meaning_of(f"the rank host of h2 ended with signal {signal}", kind="killed")
        assert found is not None
        assert found.id == name
        assert any("killed process" in command for _, command in found.commands) == (signal == 9)
    found = meaning_of(
        "the rank host of h2 ended with signal 9: out of memory: oom_kill 4 in /proc/vmstat", kind="killed"
    )
    assert found is not None
    assert found.id == "host-out-of-memory"

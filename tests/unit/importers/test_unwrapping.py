"""Lines that a terminal cut at its width are joined where the text is read better so, and only there."""

import pytest

from fabtui.importers.result import read, unwrapped
from fabtui.importers.sources import sources

from .places import REAL, SAMPLES, of_text, start_of

ERRORS = (
    "n060:7:9 [0] transport/net_ib.cc:1298 NCCL WARN NET/IB : Got completion from peer 10.0.0.61<41234> with status=12 "
    "opcode=129 len=0 vendor err 129 (Recv) localGid ::ffff:10.0.0.60 remoteGids::ffff:10.0.0.61 hca mlx5_0\n"
    "n060:7:9 [0] NCCL INFO transport/net.cc:1216 -> 6\n"
)
WATCHDOG = "".join(
    f"[rank{rank}]:[E704 10:22:41.5001 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=4, OpType=BROADCAST, NumelIn=112, NumelOut=112, Timeout(ms)=1800000) ran for 1800010 "
    "milliseconds before timing out.\n"
    for rank in (1, 2, 3, 5, 6)
)


def folded(text: str, width: int, prefix: str = "") -> str:
    return "".join(
        f"{prefix}{line[at : at + width]}\n" for line in text.splitlines() for at in range(0, max(1, len(line)), width)
    )


@pytest.mark.parametrize("width", [80, 100, 132, 138])
@pytest.mark.parametrize("text", [ERRORS, WATCHDOG], ids=["errors", "watchdog"])
def test_cut_lines_are_joined(text: str, width: int) -> None:
    for prefix in ("", "> ", "> > "):
        joined = unwrapped(folded(text, width, prefix))
        assert joined is not None
        assert joined.text == text
    kept = unwrapped(folded(text, width), keep_count=True)
    assert kept is not None
    assert kept.text.count("\n") == folded(text, width).count("\n")
    assert [line for line in kept.text.split("\n") if line] == text.splitlines()


@pytest.mark.parametrize("width", [80, 138])
def test_a_folded_log_is_read_as_it_was(width: int) -> None:
    result = of_text(folded(WATCHDOG, width))
    assert [entry["rank"] for entry in result.values["timeouts"]] == [1, 2, 3, 5, 6]
    assert result.values == of_text(WATCHDOG).values
    assert f"lines that were cut at {width} characters are joined" in result.warnings


@pytest.mark.skipif(not REAL.is_dir(), reason="no real samples here (FABTUI_REAL_SAMPLES)")
def test_a_table_that_is_wider_than_the_terminal() -> None:
    table = (REAL / "nccl-tests/nii-h100-1x8.txt").read_text()
    result = of_text(folded(table, 80))
    assert result.kind == "nccl-tests"
    assert result.values == of_text(table).values


@pytest.mark.slow
def test_lines_as_they_were_printed_stay() -> None:
    """No sample of ours is changed: long lines of one length are not cut lines, and a table reads no better joined."""
    files = [
        path for path in sorted(SAMPLES.rglob("*.txt")) if "wrapped" not in path.name and "fuzzed" not in path.parts
    ]
    # Its author cut this one.
    files += sorted(path for path in REAL.glob("*/*") if path.name not in ("ib-error12-timeout.txt",))
    assert len(files) > 100
    for path in files:
        for source in sources([str(path)]):
            text = start_of(source.text)
            warnings = read(source).warnings if unwrapped(text) else []
            assert not [warning for warning in warnings if "joined" in warning], path


def test_a_line_that_begins_with_its_time_continues_no_other() -> None:
    long = "n1: ncclSystemError: Connect to 10.0.0.2<45763> failed : Connection refused after 30 tries"
    for stamp in ("2026-11-22 10:22:01.541", "[10:22:01]", "2026-11-22T10:22:01Z"):
        assert unwrapped(f"{long}\n{stamp} rank 1 ready\n") is None, stamp


def test_a_time_of_day_that_was_cut_off_its_day() -> None:
    head = "NodeName=n063 State=MIXED+DRAIN Reason=IB link flap port mlx5_3 [root@2026-11-20T"
    text = f"{head}\n12:58:08]\n{head}\n12:58:09]\n" + f"{head[:76]}\n" * 3
    joined = unwrapped(text)
    assert joined is not None
    assert joined.text.split("\n")[:2] == [f"{head}12:58:08]", f"{head}12:58:09]"]

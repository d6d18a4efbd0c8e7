"""Logs of failed jobs: the earliest cause first, consequences below it, ranks and hosts where lines show them."""

from __future__ import annotations

import time
from datetime import datetime, timedelta, tzinfo

import pytest

from fabtui.diagnosis.knowledge.error_catalogue import meanings
from fabtui.diagnosis.knowledge.log_causes import MOST_LINES, Causes, LogPlace, LogReader, Occurrences
from tests.unit.probes.places import REAL

WARN = "transport/net_ib.cc:1 NCCL WARN NET/IB : "
DONE = WARN + "Got completion from peer 10.2.0.5<33092> with status={0} opcode=0 len=0 vendor err 129"
WATCHDOG = (
    "[rank{0}]:[E1122 02:23:12.741540326 ProcessGroupNCCL.cpp:689] [Rank {0}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=252, OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=45000) ran for 45060 "
    "milliseconds before timing out.\n"
    "[rank{0}]:[E1122 02:23:12.752035204 ProcessGroupNCCL.cpp:2303] [PG ID 0 PG GUID 0(default_pg) Rank {0}]  failure "
    "detected by watchdog at work sequence id: 252 PG status: last enqueued work: {1}, last completed work: {2}\n"
)


def causes(*logs: str) -> Causes:
    reader = LogReader()
    for log in logs:
        reader.add(log)
    return reader.result()


def shown(found: list[Occurrences]) -> list[tuple[str, int, int, int]]:
    return [(one.meaning.code, one.count, one.first.file, one.first.line) for one in found]


def test_the_earliest_line_of_all_ranks_is_the_cause() -> None:
    first = (
        "[2026-11-20 10:00:00] n061:7:9 [0] NCCL INFO Bootstrap : Using eth0:10.2.0.6<0>\n"
        f"[2026-11-20 10:12:09] n061:7:9 [0] {DONE.format(5)}\n"
        f"[2026-11-20 10:12:05] n061:7:9 [0] {DONE.format(12)}\n"
        f"[2026-11-20 10:12:06] n061:7:9 [1] {DONE.format(12)}\n"
    )
    second = (
        "[2026-11-20 10:00:01] n060:7:9 [3] NCCL INFO Bootstrap : Using eth0:10.2.0.5<0>\n"
        f"[2026-11-20 10:12:01] n060:7:9 [3] {WARN}mlx5_3:1 Got non-fatal async event: port error(10)\n"
    )
    found = causes(first, second)
    assert shown(found.causes) == [("E26", 1, 1, 2)]
    # Minutes after the start: the links had worked.
    assert shown(found.consequences) == [("E2", 2, 0, 3), ("E4", 1, 0, 2)]
    assert list(found.consequences[0].who) == ["n061 [0]", "n061 [1]"]
    assert list(found.causes[0].who) == ["n060 [3]"]


def test_without_time_stamps_the_order_is_that_of_files_and_lines() -> None:
    log = f"n061:7:9 [0] {DONE.format(5)}\nn061:7:9 [0] Call to ibv_create_cq failed: Cannot allocate memory\n"
    found = causes(log, f"n062:7:9 [0] {DONE.format(12)}\n")
    assert shown(found.causes) == [("E13", 1, 0, 2), ("E1", 1, 1, 1)]
    assert shown(found.consequences) == [("E4", 1, 0, 1)]


def test_a_line_without_time_stamp_has_that_of_its_neighbours() -> None:
    found = causes("[rank1]: CUDA out of memory\n" + WATCHDOG.format(1, 20, 19), WATCHDOG.format(0, 20, 19))
    first = found.causes[0].first
    assert (shown(found.causes), first.who) == ([("E40", 1, 0, 1)], "rank 1")
    assert first.time is not None
    assert (first.time.month, first.time.day, first.time.hour) == (11, 22, 2)


def test_time_stamps_with_zones_are_compared() -> None:
    found = causes(
        "2026-11-20T11:00:00+02:00 n060:1:1 [0] NCCL WARN Mismatched NCCL version detected\n",
        "2026-11-20T08:59:59.5Z n061:1:1 [0] NCCL WARN Failed to initialize any NET plugin\n",
    )
    assert shown(found.causes) == [("E17", 1, 1, 1), ("E24", 1, 0, 1)]


def test_only_consequences_are_reported_as_such() -> None:
    found = causes(WATCHDOG.format(0, 271, 251) + WATCHDOG.format(2, 271, 251), WATCHDOG.format(1, 251, 251))
    assert [(one.meaning.code, one.meaning.role) for one in found.causes] == [("E35", "consequence")]
    assert list(found.causes[0].who) == ["rank 0", "rank 2", "rank 1"]
    assert found.behind == [1]


def test_of_equal_queues_the_rank_that_completed_less_is_behind() -> None:
    assert causes(WATCHDOG.format(0, 271, 251), WATCHDOG.format(1, 271, 240)).behind == [1]
    assert causes(WATCHDOG.format(0, 270, 251), WATCHDOG.format(1, 271, 251)).behind == [0]


def test_microseconds_decide_which_line_is_the_earliest() -> None:
    memory, port = "CUDA out of memory", f"n061:7:9 [0] {WARN}mlx5_3:1 Got non-fatal async event: port error(10)"
    log = "2026-11-20 10:00:00.{0} {1}\n"
    for late, early in (("500001", "500000"), ("500000001", "500000"), ("5", "499999")):
        found = causes(log.format(late, memory), log.format(early, port))
        assert {one.first.file for one in found.causes[:1]} == ({1} if late != "500000001" else {0}), "ns are no reason"


@pytest.mark.parametrize(("minute", "second", "code"), [(0, 59, "E1"), (1, 0, "E2"), (12, 0, "E2")])
def test_a_failure_a_minute_after_the_start_is_one_of_links_that_had_worked(
    minute: int, second: int, code: str
) -> None:
    log = (
        "[2026-11-20 10:00:00] n061:7:9 [0] NCCL INFO Bootstrap : Using eth0:10.2.0.6<0>\n"
        f"[2026-11-20 10:{minute:02}:{second:02}] n061:7:9 [0] {DONE.format(12)}\n"
    )
    assert [one.meaning.code for one in causes(log).causes] == [code]


def test_no_rank_is_behind_where_all_are_equal() -> None:
    assert causes(WATCHDOG.format(0, 3, 2), WATCHDOG.format(1, 3, 2)).behind == []


def test_a_completion_from_the_same_node_is_another_error() -> None:
    own = "n060:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:{0}<0>\n"
    error = f"n060:7:9 [0] {DONE.format(12)}\n"
    assert shown(causes(own.format("10.2.0.5") + error).causes) == [("E3", 1, 0, 2)]
    assert shown(causes(own.format("10.2.0.6") + error).causes) == [("E1", 1, 0, 2)]


def test_ranks_that_did_not_finish_to_initialise_are_counted() -> None:
    line = "n060:{0}:9 [0] NCCL INFO ncclCommInitRank comm 0x5 rank {0} nranks 4 cudaDev 0 busId 18000 - Init {1}\n"
    log = "".join(line.format(rank, "START") for rank in range(4))
    found = causes(log + line.format(1, "COMPLETE") + line.format(2, "COMPLETE"))
    assert shown(found.causes) == [("E19", 2, 0, 1)]
    assert causes(log + "".join(line.format(rank, "COMPLETE") for rank in range(4))).causes == []


def test_what_is_no_error_by_itself_is_a_note() -> None:
    log = "n060:1:9 [0] NCCL INFO Using network Socket\nn060:1:9 [0] Cuda failure 802 'system not yet initialized'\n"
    found = causes(log)
    assert (shown(found.causes), shown(found.notices)) == ([("E31", 1, 0, 2)], [("E15", 1, 0, 1)])


def test_xids_of_a_kernel_log_are_causes_or_notices() -> None:
    log = (
        "[  12.5] NVRM: Xid (PCI:0000:9b:00): 13, pid=7, name=python3, Graphics Exception\n"
        "[  13.5] NVRM: Xid (PCI:0000:9b:00): 119, pid=7, name=nvidia-smi, Timeout after 6s of waiting for RPC\n"
        "[  14.5] NVRM: Xid (PCI:0000:9b:00): 9999, pid=7, no such number\n"
        "[  15.5] NVRM: Xid (PCI:0000:9b:00): 79, pid=7, GPU has fallen off the bus.\n"
    )
    found = causes(log)
    assert shown(found.causes) == [("FT130", 1, 0, 2), ("FT130", 1, 0, 4)]
    assert [one.meaning.id for one in found.causes] == ["xid-119", "xid-79"]
    assert shown(found.notices) == [("FT130", 1, 0, 1)]
    assert found.causes[0].meaning.next.startswith("RESET_GPU: drain the node")


def test_unknown_warnings_and_exceptions_are_kept() -> None:
    odd = "n060:1:9 [0] x.cc:3 NCCL WARN odd thing {0}\n"
    log = "[rank3]: ValueError: shapes differ\n" + odd.format(1) + odd.format(2)
    assert [(place.line, place.who) for place in causes(log).unknown] == [(1, "rank 3"), (2, "n060 [0]")]


@pytest.mark.parametrize(
    ("line", "rank"), [("[1,3]<stderr>: x", 3), ("12: x", 12), ("[default7]:x", 7), ("[Rank 5] x", 5)]
)
def test_labels_of_launchers_name_the_rank(line: str, rank: int) -> None:
    assert list(causes(f"{line} CUDA out of memory").causes[0].who) == [f"rank {rank}"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "Got completion " * 200_000,
        "[2026-99-99 99:99:99] CUDA out of memory\n" * 2000,
        "cuMemSetAccess float sum " + "1 " * 100_000,
        "\x00\n" * 100_000,
        "error\n" * 20_000,
    ],
)
def test_hostile_text_is_read_in_bounded_time(text: str) -> None:
    start = time.process_time()
    causes(text)
    assert time.process_time() - start < 10


def test_the_number_of_errors_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.diagnosis.knowledge.log_causes.MOST_ERRORS", 2)
    for count, cut in ((2, False), (3, True)):
        reader = LogReader()
        reader.add("CUDA out of memory\n" * count)
        assert (reader.cut, reader.result().causes[0].count) == (cut, 2)


def test_the_number_of_lines_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.diagnosis.knowledge.log_causes.MOST_LINES", 2)
    assert MOST_LINES >= 1_000_000
    reader = LogReader()
    reader.add("a\nb\nCUDA out of memory\n")
    assert reader.cut
    assert reader.result().causes == []


@pytest.mark.skipif(not REAL.is_dir(), reason="no real samples here (FABTUI_REAL_SAMPLES)")
@pytest.mark.parametrize(
    ("name", "codes"),
    [
        ("nccl-debug-log/ib-error12-timeout.txt", ["E1"]),
        ("nccl-debug-log/socket-connect-abort-then-shm.txt", ["E18", "E34", "E20"]),
        ("nccl-debug-log/init-complete-shm-commid.txt", []),
        ("torch-failure/cuda-ecc-uncorrectable-traceback.txt", ["E41"]),
        ("torch-failure/ncclremoteerror-ofi-rank-prefix.txt", ["E43", "E34"]),
        ("torch-failure/ncclremoteerror-recv-reset.txt", ["E34", "E20"]),
        ("torch-failure/one-line-runon-ncclremoteerror.txt", ["E1"]),
        ("torch-failure/watchdog-allreduce-timeout-3ranks.txt", ["E35"]),
        ("dmesg-xid/gpud-xid48-63-94-iso.txt", ["FT130", "FT130", "FT130"]),
        ("dmesg-xid/gpud-xid119-gsp-timeout.txt", ["FT130", "E114", "E227"]),
        ("dmesg-xid/rminitadapter-repeat-syslog.txt", ["E46"]),
        ("nvidia-smi-broken/driver-not-running.txt", ["E45"]),
        ("perftest/failed-modify-qp-rtr.txt", ["E407"]),
        ("nvbandwidth/v07-assert-failure.txt", ["E48"]),
        ("fabricmanager-log/gpud-multicast-lines.txt", ["E49"]),
    ],
)
def test_real_logs(name: str, codes: list[str]) -> None:
    found = causes((REAL / name).read_text())
    assert [one.meaning.code for one in (*found.causes, *found.consequences)] == codes


def test_a_day_that_is_still_to_come_was_last_year() -> None:
    """Watchdogs of PyTorch print no year."""
    now = datetime.now()
    later = now + timedelta(days=10)
    found = causes(
        f"{now:%Y-%m-%d %H:%M:%S} n061:7:9 [0] {WARN}mlx5_3:1 Got non-fatal async event: port error(10)\n",
        f"[rank1]:[E{later:%m%d %H:%M:%S}.000001 x.cpp:1] CUDA out of memory\n",
    )
    first = found.causes[0].first
    assert (first.file, first.time is not None and first.time < now - timedelta(days=300)) == (1, True)


@pytest.mark.parametrize(("text", "lines"), [("", 0), ("a", 1), ("a\n", 1), ("a\nb", 2), ("a\n\n", 2)])
def test_a_line_feed_at_the_end_starts_no_line(text: str, lines: int) -> None:
    reader = LogReader()
    reader.add(text)
    assert reader.lines == lines
    reader.add("x\n")
    assert reader.lines == lines + 1


@pytest.mark.parametrize(("hours", "year"), [(23, 2026), (25, 2025)])
def test_a_stamp_may_be_a_day_ahead_as_clocks_and_zones_differ(
    monkeypatch: pytest.MonkeyPatch, hours: int, year: int
) -> None:
    class Clock(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Clock:
            return cls(2026, 6, 1, 12, tzinfo=tz)

    monkeypatch.setattr("fabtui.diagnosis.knowledge.log_causes.datetime", Clock)
    stamp = Clock.now() + timedelta(hours=hours)
    found = causes(f"[rank1]:[E{stamp:%m%d %H:%M:%S}.000001 x.cpp:1] CUDA out of memory\n")
    assert found.causes[0].first.time == stamp.replace(year=year, microsecond=1)


NODE = "n060:100:120 [0] NCCL INFO "
NO_DEVICE = f"{NODE}NET/IB : No device found.\n"
TWO_NODES = f"{NODE}comm 0x1 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0\n"
ENDED = f"{NODE}[Service thread] x\n[rank0]: ncclRemoteError: A call failed possibly due to a network error.\n"


def test_a_line_that_informs_is_no_cause() -> None:
    warned = causes(NO_DEVICE + "n060:100:120 [0] odd.cc:5 NCCL WARN odd thing\n")
    assert (warned.causes, [place.line for place in warned.unknown], shown(warned.notices)) == (
        [],
        [2],
        [("E15", 1, 0, 1)],
    )
    informed = causes(f"{NODE}Call to connect returned Connection refused, retrying\n")
    assert informed.causes == []


@pytest.mark.parametrize(
    ("log", "codes"),
    [
        (NO_DEVICE + ENDED, ["E34"]),
        (NO_DEVICE + TWO_NODES + ENDED, ["E15"]),
        (NO_DEVICE + NO_DEVICE.replace("n060", "n061") + ENDED, ["E15"]),
        (NO_DEVICE + TWO_NODES + ENDED + "n060:1:2 [0] transport/shm.cc:5 NCCL WARN odd\n", ["E207"]),
        (NO_DEVICE + TWO_NODES + f"{NODE}comm 0x1 rank 0 nranks 16 cudaDev 0 busId 1b000 - Init COMPLETE\n", []),
    ],
)
def test_no_rdma_device_is_a_cause_between_nodes_without_a_warning(log: str, codes: list[str]) -> None:
    assert [one.meaning.code for one in causes(log).causes] == codes


def test_an_entry_stands_above_a_stage_and_a_stage_above_what_is_unknown() -> None:
    stage = "n060:1:2 [0] transport/shm.cc:5 NCCL WARN odd\n"
    found = causes(stage + "n060:1:2 [0] NCCL WARN Mismatched NCCL version detected\n" + stage)
    assert [one.meaning.code for one in found.causes] == ["E24", "E207"]
    later = causes("n060:1:2 [0] NCCL WARN Mismatched NCCL version detected\n" + stage)
    assert ([one.meaning.code for one in later.causes], [one.meaning.code for one in later.consequences]) == (
        ["E24"],
        ["E207"],
    )


def test_calls_that_returned_show_the_stage_of_a_warning_without_a_file() -> None:
    returned = f"{NODE}transport/nvls.cc:409 -> 1\n{NODE}init.cc:800 -> 1\n"
    found = causes("n060:100:120 [0] NCCL WARN odd thing\n" + returned)
    assert ([one.meaning.code for one in found.causes], found.unknown) == (["E200"], [])
    assert "odd thing" in found.causes[0].first.text
    alone = causes(returned)
    assert [(one.meaning.code, one.count, one.first.line) for one in alone.causes] == [("E200", 1, 1)]
    assert "NCCL result 1" in alone.causes[0].meaning.text
    # Where a warning names the cause, they add nothing.
    assert [one.meaning.code for one in causes(f"{returned}n060:1:2 [0] NCCL WARN magic mismatch\n").causes] == ["E21"]


def test_a_warning_in_general_code_has_the_stage_of_the_call_that_returned_it() -> None:
    warning = "n060:100:120 [0] include/alloc.h:102 NCCL WARN Cuda failure 402 'odd'\n"
    alone = causes(warning).causes[0].meaning
    assert (alone.code, "CUDA error 402" in alone.text) == ("E212", True)
    returned = causes(f"{warning}{NODE}transport/shm.cc:590 -> 1\n{NODE}init.cc:33 -> 1\n").causes
    assert [(one.meaning.code, one.first.line) for one in returned] == [("E207", 1)]
    assert "CUDA error 402" in returned[0].meaning.text


def test_what_may_do_harm_is_a_cause_where_nothing_else_is_one() -> None:
    missing = 'n060:100:120 [0] init.cc:126 NCCL WARN Missing "iommu=pt" from kernel command line which is odd\n'
    assert [one.meaning.code for one in causes(missing).causes] == ["E84"]
    found = causes(f"{missing}n060:100:120 [0] NCCL WARN Mismatched NCCL version detected\n")
    assert ([one.meaning.code for one in found.causes], shown(found.notices)) == (["E24"], [("E84", 1, 0, 1)])


def test_what_pytorch_tries_again_is_a_cause_only_at_the_end_of_a_log() -> None:
    tries = (
        "[rank1]:[W1120 10:00:00.1 socket.cpp:752] [c10d] The client socket has failed to connect to [n060]:29500 "
        "(errno: 111 - Connection refused).\n"
    )
    assert [one.meaning.code for one in causes(tries * 3).causes] == ["E95"]
    went_on = causes(tries + "step 1 loss 2.0\n" * 30)
    assert (went_on.causes, shown(went_on.notices)) == ([], [("E95", 1, 0, 1)])
    assert [one.meaning.code for one in causes(f"{tries}CUDA out of memory\n").causes] == ["E40"]


LAST = (
    "[rank0]: torch.distributed.DistBackendError: NCCL error in: NCCLUtils.cpp:9, unhandled cuda error\n"
    "[rank0]: ncclUnhandledCudaError: Call to CUDA function failed.\n[rank0]: Last error:\n"
)


def test_the_last_error_is_searched_for_the_cause() -> None:
    found = causes(f"{LAST}[rank0]: Cuda failure 402 'odd'\n")
    assert [one.meaning.code for one in found.causes] == ["E212"]
    assert "CUDA error 402" in found.causes[0].meaning.text
    named = causes(f"{LAST}[rank0]: odd socket thing. Set NCCL_SOCKET_IFNAME=eth0 to avoid it.\n")
    assert [one.meaning.code for one in named.causes] == ["E210"]
    assert named.advice == "NCCL advises: Set NCCL_SOCKET_IFNAME=eth0 to avoid it."
    # Lines of another message are none of it.
    assert causes(f"{LAST}[rank0]:[I1120 10:00:00.1 x.cpp:1] odd socket\n").causes[0].meaning.code == "E34"


@pytest.mark.parametrize(
    ("log", "asks"), [(LAST, True), (f"{LAST}odd\n", False), (f"{NODE}Init\n{LAST}", False), ("ncclSystemError", True)]
)
def test_no_other_run_is_asked_for_where_the_log_has_more(log: str, asks: bool) -> None:
    found = causes(log).causes[0]
    assert (found.meaning.code, "NCCL_DEBUG=INFO" in found.meaning.next) == ("E34", asks)


@pytest.mark.parametrize(
    ("line", "advice"),
    [
        (
            "n1:2:3 [0] mnnvl.cc:7 NCCL WARN Odd (size 8). Check the channel. Set NCCL_MNNVL_ENABLE=0 to ignore it.",
            "NCCL advises: Check the channel. Set NCCL_MNNVL_ENABLE=0 to ignore it.",
        ),
        ("Warning: odd name. Manually set the interface with GLOO_SOCKET_IFNAME. (x)", "Gloo advises: Manually set"),
        ('n1:2:3 [0] NCCL WARN Missing "iommu=pt" from kernel command line which is odd', "NCCL advises: Missing"),
        ("NCCL INFO NCCL_P2P_LEVEL set by environment to LOC", ""),
        ("n1:2:3 [0] NCCL WARN odd (run with NCCL_DEBUG=INFO for details)", ""),
        ("set the table, check the oven", ""),
    ],
)
def test_what_the_library_advises_is_quoted(line: str, advice: str) -> None:
    found = causes(line)
    assert found.advice.startswith(advice)
    assert bool(found.advice) is bool(advice)


def test_a_rank_that_reports_one_thing_in_two_lines_is_counted_once() -> None:
    found = causes(WATCHDOG.format(0, 271, 251) + WATCHDOG.format(2, 271, 251))
    assert shown(found.causes) == [("E35", 2, 0, 1)]
    again = causes(WATCHDOG.format(0, 271, 251) * 3)
    assert shown(again.causes) == [("E35", 3, 0, 1)]


XID = "NVRM: Xid (PCI:0000:9b:00): {0}, pid=7, name=python3, {1}\n"


def test_without_stamps_a_fatal_report_of_the_kernel_goes_first() -> None:
    log = XID.format(144, "NVLINK: SAW Nonfatal") + XID.format(149, "NVLINK: NETIR Fatal")
    assert [one.meaning.id for one in causes(log).causes] == ["xid-149", "xid-144"]
    timed = "[Fri Nov 20 10:12:40 2026] " + XID.format(144, "Nonfatal") + "[Fri Nov 20 10:12:41 2026] "
    assert [one.meaning.id for one in causes(timed + XID.format(149, "Fatal")).causes] == ["xid-144", "xid-149"]


def test_stamps_of_the_kernel_are_compared_with_those_of_ranks() -> None:
    kernel = "[Fri Nov 20 10:12:40 2026] " + XID.format(79, "GPU has fallen off the bus.")
    rank = f"[2026-11-20 10:12:09] n061:7:9 [0] {DONE.format(12)}\n"
    assert [one.first.file for one in causes(kernel, rank).causes] == [1, 0]
    assert [one.first.file for one in causes(kernel.replace("10:12:40", "10:12:01"), rank).causes] == [0]


def test_commands_have_the_values_of_the_line() -> None:
    line = (
        "n060:7:9 [0] NCCL WARN NET/IB : Got completion from peer 10.2.0.5<33092> with status=12 opcode=0 len=0 vendor "
        "err 129 (Recv) localGid ::ffff:10.9.0.6 remoteGid ::ffff:10.9.0.5 hca mlx5_10\n"
    )
    found = causes(line).causes[0]
    assert ("src", "ip route get 10.9.0.5 from 10.9.0.6") in found.explained.commands
    assert (found.peer, found.first.node) == ("10.2.0.5", "n060")
    bare = causes(line.replace(" localGid ::ffff:10.9.0.6 remoteGid ::ffff:10.9.0.5", "")).causes[0]
    assert ("src", "ip route get 10.2.0.5") in bare.explained.commands


def test_all_placeholders_are_filled() -> None:
    place = LogPlace(0, 1, None, "", "odd")
    for one in meanings():
        found = Occurrences(one, place, place).explained
        assert "{" not in found.text + found.next + "".join(command for _, command in found.commands), one.id


def test_the_port_is_that_of_the_message() -> None:
    """The thread and the line of the source before it are not ports; without one there is no command."""
    head = "n000:12345:23456 [0] misc/socket.cc:812 NCCL WARN "
    for message, commands in (
        ("Call to connect returned Connection refused", []),
        ("socketStartConnect: Connect to 10.0.0.2<45763> failed : Connection refused", ["ss -ltnp 'sport = :45763'"]),
    ):
        (found,) = causes(f"{head}{message}\n").causes
        assert [command for _, command in found.explained.commands if "sport" in command] == commands

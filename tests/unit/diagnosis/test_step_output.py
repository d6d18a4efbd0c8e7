"""Judgement of the outputs of next steps."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.knowledge.step_command import OutputJudgement, judged_output
from fabtui.model.events import CommandEnd, CommandStart
from fabtui.model.session_logs import CommandRun
from fabtui.presentation.wording import plain
from fabtui.screen.widgets.finding_lines import output_lines

SAMPLES = Path(__file__).parents[2] / "samples"
LINK = """2: eth1: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 9000 qdisc mq state UP mode DEFAULT group default qlen 1000
    RX:  bytes packets errors dropped  missed   mcast
     976041211  102930      0      12       0       0
    TX:  bytes packets errors dropped carrier collsns
     976041211  102930      {}       0       0       0
"""
RULES = """table inet filter {
    chain input {
        type filter hook input priority filter; policy accept;
        ip saddr 10.0.0.2 tcp dport 30000-65535 reject with tcp reset
    }
}
"""


def run_of(command: str, output: str, exit_status: int | None = 0, **more: Any) -> CommandRun:
    start = CommandStart(number=1, node="n0", command=f"ssh n0 {command}", argv=shlex.split(command), time=1.0)
    return CommandRun(start, CommandEnd(number=1, output=output, exit=exit_status, time=2.0, **more))


def judged(command: str, output: str, exit_status: int | None = 0, **more: Any) -> OutputJudgement:
    return judged_output(run_of(command, output, exit_status, **more), output.splitlines())


@pytest.mark.parametrize(
    ("command", "output", "words", "marked"),
    [
        ("ss -ltnp 'sport = :39505'", "State  Recv-Q Send-Q\n", "nothing listens there", []),
        ("ss -ltnp sport = :39505", "State Recv-Q\nLISTEN 0 128 0.0.0.0:39505\n", "something listens there", []),
        ("sudo nft list ruleset", RULES, "rules that drop or reject, in 1 line", [3]),
        ("sudo nft list ruleset", "", "not the firewall of this node", []),
        ("ip neigh show to 10.0.0.2", "10.0.0.2 dev eth0 FAILED\n", "does not answer", [0]),
        ("ip neigh show to 10.0.0.2", "10.0.0.2 dev eth0 lladdr 02:00:00:00:00:02 REACHABLE\n", "answers ARP", []),
        ("ping -c3 10.0.0.2", "3 packets transmitted, 2 received, 33.3333% packet loss, time 2000ms\n", "lost", [0]),
        ("ping -c3 10.0.0.2", "3 packets transmitted, 3 received, 0% packet loss, time 2000ms\n", "answered", []),
        ("tc -s qdisc show dev eth1", "qdisc tbf 8001: root rate 80Mbit\n Sent 0 bytes\n", "limits or delays", [0]),
        ("tc -s qdisc show dev eth1", "qdisc noqueue 0: root refcnt 2\n", "no qdisc limits", []),
        ("nstat -asz TcpRetransSegs", "#kernel\nTcpRetransSegs   12    0.0\n", "counted since boot", [1]),
        ("ip -s link show eth1", LINK.format(7), "in 1 line", [4]),
        ("ip -s link show eth1", LINK.format(0), "no errors are counted", []),
        ("ip -s -s link show eth1", LINK.replace("LOWER_UP", "NO-CARRIER").format(0), "missing carrier", [0]),
        ("ibstat mlx5_0", "\t\tState: Down\n\t\tPhysical state: Polling\n", "not active", [0, 1]),
        ("ibstat mlx5_0", "\t\tState: Active\n\t\tPhysical state: LinkUp\n", "port is active", []),
        ("nvidia-smi topo -p2p n", "\tGPU0\tGPU1\n GPU0\tX\tCNS\n GPU1\tOK\tX\n", "in 1 line", [1]),
        ("sudo dmesg", "NVRM: Xid 79\n", "fabtui explain", [0]),
        ("sudo dmesg", "", "reports nothing", []),
        ("lsmod", "", "GPUDirect RDMA", []),
    ],
)
def test_an_output_is_judged_and_its_abnormal_lines_are_marked(
    command: str, output: str, words: str, marked: list[int]
) -> None:
    found = judged(command, output)
    assert words in found.sentence
    assert found.marked == frozenset(marked)


@pytest.mark.parametrize(
    ("name", "command", "good"),
    [
        ("h200x8/nvlink-e.txt", "nvidia-smi nvlink -e", True),
        ("nvlink5/nvlink-e-noisy-link.txt", "nvidia-smi nvlink -e", False),
        ("h200x8/topo-p2p-n.txt", "nvidia-smi topo -p2p n", True),
    ],
)
def test_outputs_of_machines_are_judged(name: str, command: str, good: bool) -> None:
    found = judged(command, (SAMPLES / name).read_text("utf-8"))
    assert found.sentence
    assert (not found.marked) is good


@pytest.mark.parametrize(
    ("exit_status", "more"),
    [(1, {}), (None, {"problem": "killed"}), (0, {"dropped": 9})],
    ids=["failed", "killed", "cut"],
)
def test_an_output_that_failed_or_was_cut_clears_nothing(exit_status: int | None, more: dict[str, Any]) -> None:
    assert judged("sudo nft list ruleset", "", exit_status, **more) == OutputJudgement()
    assert judged("uptime", "1 day", 0) == OutputJudgement()


def test_where_room_is_short_the_abnormal_lines_are_shown() -> None:
    run = run_of("sudo nft list ruleset", RULES)
    lines = [plain(line).strip() for line in output_lines(run, 100, "...", 3)]
    assert lines[1] == "rules that drop or reject, in 1 line: compare them with the addresses of the pair"
    assert lines[2] == "ip saddr 10.0.0.2 tcp dport 30000-65535 reject with tcp reset"
    assert lines[3] == "and 5 more lines: select the step"

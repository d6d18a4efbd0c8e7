"""Real NCCL between nodes that share a GPU (`fabtui lab up --gpu`): a planted fault has the same title each time."""

import gzip
import random
import re
from pathlib import Path

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.presentation.findings import evidence, title
from tests.conftest import replayed

SAMPLES = Path(__file__).parents[2] / "samples" / "gpu-lab"
SENDER = "n001:0 is slow with all 2 others as sender (receiving works): check its NIC, the GPU or the node"


@pytest.mark.parametrize(
    ("name", "titles"),
    [
        *[(f"slow-out-60MB-{number}", [SENDER]) for number in (1, 2, 3)],
        ("slow-out-6MB", [SENDER.replace("n001", "n002")]),
        ("slow-in-6MB", [SENDER.replace("sender (receiving", "receiver (sending")]),
        ("drop", ["one-way loss: n000 > n002 on rail 0 (10.1.0.1 > 10.1.0.3); reverse passes"]),
        ("firewall", ["no answer on ephemeral ports of n001 to TCP from any node (ping passes)"]),
        ("loss-out", ["n002 rail 0 (eth0 10.1.0.3), outgoing: 10 to 13 % of packets are lost"]),
        ("healthy", []),
    ],
)
def test_the_same_evidence_has_the_same_title(name: str, titles: list[str]) -> None:
    model = replayed(SAMPLES / f"{name}.jsonl.gz")
    assert [title(finding) for finding in diagnose(model).findings] == titles


@pytest.mark.parametrize("seed", range(3))
def test_without_a_variable_nccl_uses_the_network_of_ssh_as_well(tmp_path: Path, seed: int) -> None:
    """A healthy run in which NCCL takes either interface for each pair: the title is the same for each choice."""
    chance = random.Random(seed)
    with gzip.open(SAMPLES / "healthy.jsonl.gz", "rt") as file:
        text = re.sub("NET/Socket/eth0", lambda _: f"NET/Socket/{chance.choice(('eth0', 'mgmt0'))}", file.read())
    record = tmp_path / "r.jsonl"
    record.write_text(text.replace(',"NCCL_SOCKET_IFNAME":"eth"', ""))
    (one,) = diagnose(replayed(record)).findings
    network = "NCCL sends over mgmt0, the network of SSH, though eth0 carries data: set NCCL_SOCKET_IFNAME=eth0"
    assert title(one) == f"all nodes: {network}"


def test_the_evidence_states_what_was_sent_and_what_the_whole_message_would_take() -> None:
    findings = diagnose(replayed(SAMPLES / "slow-in-6MB.jsonl.gz")).findings
    slowest = next(line for line in evidence(findings[0]) if " > n001:0: " in line)
    assert re.search(r" MB/s, .* of the usual .* \(2 MiB; 256 MiB would take \d\d s\)$", slowest)

"""A read-only session sends passive probes to its nodes, and nothing else."""

import asyncio
from pathlib import Path

import pytest

from fabtui.cli import main as entry
from fabtui.config.options import session_changes
from fabtui.diagnosis.knowledge.step_command import step_command
from fabtui.errors import InputError
from fabtui.model.events import Experiment
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.node_client import NodeClient, ProbeFailed
from fabtui.session.options import SessionOptions
from fabtui_node import registry
from tests.unit.session.fakenodes import FakeLink, FakeNodes, Script

PASSIVE = {name for name, spec in registry.PROBES.items() if spec.passive}


def test_what_loads_the_fabric_or_runs_foreign_code_is_not_passive() -> None:
    assert PASSIVE.isdisjoint(("ping", "udp", "gpuload", "storage", "iperf3", "perftest", "flight", "own", "command"))
    assert {*registry.PREFLIGHT, "inventory", "counters", "routes"} <= PASSIVE


async def test_every_request_of_a_user_leads_to_passive_probes_at_most() -> None:
    script = Script({"a": 2, "b": 2})
    nodes = FakeNodes(script)
    given = session_changes({"read_only": True})
    # The other options change nothing of that.
    options = SessionOptions(hosts=("a", "b"), keep_warm=True, confirm=True, **given)
    feed = LiveFeed(options, nodes)
    assert feed.badges == ["READ-ONLY"]
    async with asyncio.timeout(40):
        await feed.run()
        await feed.sweep()
        await feed.retest([("a:0", "b:0")])
        await feed.confirm([Experiment(rule="FT017", subject=("pair", "x"), trial="alone", pairs=[("a:0", "b:0")])])
        feed.watch(True)
        await feed.look(["a"])
        await feed.run_step(step_command(feed.model, "ssh a sudo ip route flush cache"))
        await feed.run_step(step_command(feed.model, "ssh a ip -s link"))
        await feed.close()
    sent = [message for link in nodes.links.values() for message in link.sent]
    assert {message["t"] for message in sent} == {"probe"}
    commands = [message["args"]["argv"] for message in sent if message["name"] == "command"]
    assert commands == [["ip", "-s", "link"]]
    assert {message["name"] for message in sent} - {"command"} <= PASSIVE
    assert {"ibstat", "gpus", "host"} & {message["name"] for message in sent}
    assert not feed.model.watching
    assert list(feed.model.measurements()) == []
    assert feed.model.phase.name == "done"
    assert any("not run, the session is read-only" in line.text for line in feed.model.log)


async def test_a_client_refuses_whoever_asks() -> None:
    link = FakeLink("a", Script({"a": 2}))
    client = NodeClient(link, read_only=True)
    for name in ("ping", "udp", "storage", "own"):
        with pytest.raises(ProbeFailed, match="read-only"):
            await client.probe(name, {}, 1.0)
    with pytest.raises(ProbeFailed, match="read-only"):
        await client.spawn({}, {}, None, 1.0)
    await client.stand_by({}, {}, None)
    assert link.sent == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"probes": ["p2p", "ibstat"]}, "runs passive probes only, and these are not: p2p"),
        ({"probes": ["ping"]}, "these are not: ping"),
        ({"pair": ["a:0>b:0"]}, "it excludes --pair"),
        ({"confirm": True}, "it excludes --confirm"),
    ],
)
def test_tests_are_refused_at_the_start(given: dict[str, object], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        session_changes({"read_only": True, **given})


def test_passive_probes_may_be_chosen() -> None:
    changes = session_changes({"read_only": True, "probes": ["ibstat", "host"]})
    assert set(changes["probes"]) == {"ibstat", "host"}
    assert changes["preflight_only"]


def test_an_unreachable_node_ends_with_3_as_in_a_preflight(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "ssh_config"
    config.write_text("Host nowhere\n  HostName 127.0.0.1\n  Port 1\n  UserKnownHostsFile none\n")
    words = ["run", "--read-only", "--nodes", "nowhere", "--ssh-config", str(config), "--no-record", "--quiet"]
    assert entry.main(words) == 3
    assert "nowhere" in capsys.readouterr().out

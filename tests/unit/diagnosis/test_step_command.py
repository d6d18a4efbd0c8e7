"""Next steps as commands: node, words, filters, refusals, and which only read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.knowledge.step_command import CannotRunError, LineFilter, is_read_only, step_command
from fabtui.model.session_logs import MOST_COMMANDS
from fabtui.model.session_model import Model
from tests.conftest import ModelMaker

READ_ONLY = """
ip -s link
ip -s link show eth1
ip -br addr
ip -br addr show eth1
ip route get 10.0.0.1 from 10.0.0.2
ping -c3 -I 10.0.0.1 10.0.0.2
ping -M do -s 8972 -c 3 -I 10.0.0.1 10.0.0.2
ibstat mlx5_0 1
ibv_devinfo -v
nvidia-smi
nvidia-smi topo -m
nvidia-smi topo -p2p n
nvidia-smi nvlink -e -i 0,3
nvidia-smi -q -i 0 -d ECC,PERFORMANCE,PAGE_RETIREMENT
nvidia-smi -q -d PERFORMANCE,CLOCK
lsmod
dmesg -T
sysctl net.ipv4.conf.all.rp_filter net.ipv4.conf.eth0.rp_filter
ls /dev/infiniband
df -h /dev/shm
cat /proc/cmdline
numactl -H
chronyc tracking
uptime
lscpu
hostnamectl
ethtool -S eth0
ss -tan
"""
MAY_CHANGE = """
ip link set eth0 down
ip route flush cache
ip -batch /tmp/x
ip netns exec a sh
ip link show -batch
ping 10.0.0.2
ping -f -c3 10.0.0.2
ping -c3 -p ff 10.0.0.2
nvidia-smi -pl 300
nvidia-smi -r
nvidia-smi nvlink -r 0
sysctl -w
sysctl -p
sysctl kernel.numa_balancing=0
sysctl net.a -p
dmesg -C
dmesg -c
journalctl --vacuum-size=1
systemctl restart sshd
cat /proc/kmsg
cat /etc/shadow
ethtool -K eth0
ethtool -r eth0
ss -K
sudo dmesg
sudo nvidia-smi
/tmp/ip -s link
sh -c ls
rm -rf /
hostnamectl hostname x
chronyc makestep
"""


@pytest.mark.parametrize("text", READ_ONLY.strip().splitlines())
def test_commands_that_only_read(text: str) -> None:
    assert is_read_only(text.split())


@pytest.mark.parametrize("text", MAY_CHANGE.strip().splitlines())
def test_commands_that_may_change_something_or_are_unknown(text: str) -> None:
    assert not is_read_only(text.split())


def test_one_word_cannot_pass_for_several() -> None:
    assert is_read_only(["ip", "-s", "link"])
    assert not is_read_only(["ip", "-s link"])
    assert not is_read_only(["ip", "-s", "link", "show\neth0"])


@pytest.fixture
def model(make_model: Callable[[], ModelMaker]) -> Model:
    return make_model().start(["n003", "10.0.0.7"], options={"ssh_config": "/x/config"}).model()


@pytest.mark.parametrize(
    ("text", "node", "argv"),
    [
        ("ssh n003 ip -s link", "n003", ["ip", "-s", "link"]),
        ("ssh -F /x/config n003 ip -s link show eth1", "n003", ["ip", "-s", "link", "show", "eth1"]),
        ("ssh -F '/a b/c' -p 22 10.0.0.7 uptime", "10.0.0.7", ["uptime"]),
        ("ssh n003 'ip -s link'", "n003", ["ip", "-s", "link"]),
        ("ssh n003 sudo ip route flush cache", "n003", ["sudo", "ip", "route", "flush", "cache"]),
    ],
)
def test_an_ssh_command_runs_on_its_node(model: Model, text: str, node: str, argv: list[str]) -> None:
    found = step_command(model, text)
    assert (found.node, list(found.argv), found.greps, found.last) == (node, argv, (), 0)
    assert found.text == text


@pytest.mark.parametrize(
    ("text", "greps", "last"),
    [
        ("ssh n003 lsmod | grep -E 'nvidia_peermem|nv_peer_mem'", [LineFilter(("nvidia_peermem", "nv_peer_mem"))], 0),
        ("ssh n003 sudo dmesg | grep -i xid", [LineFilter(("xid",), True)], 0),
        ("ssh n003 'sudo dmesg | grep -iE \"mce|edac\"'", [LineFilter(("mce", "edac"), True)], 0),
        ("ssh n003 nvidia-smi -q | grep -A9 'GPU Link Info'", [LineFilter(("GPU Link Info",), False, 9)], 0),
        ("ssh n003 sudo dmesg -T | tail -50", [], 50),
        ("ssh n003 dmesg | grep -i link | tail -n 5", [LineFilter(("link",), True)], 5),
    ],
)
def test_plain_filters_are_applied_by_the_node_side(
    model: Model, text: str, greps: list[LineFilter], last: int
) -> None:
    found = step_command(model, text)
    assert (list(found.greps), found.last) == (greps, last)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("fabtui run --nodes a,b --probes perftest", "fabtui itself"),
        ("ssh n003 'sysctl a; ip rule'", "needs a shell (;)"),
        ("ssh n003 ls && reboot", "needs a shell (&&)"),
        ("ssh n003 ls & reboot", "needs a shell (&)"),
        ("ssh n003 ls > /tmp/x", "needs a shell (>)"),
        ("ssh n003 ls $(reboot)", "needs a shell"),
        ("ssh n003 ls '$(reboot)'", "needs a shell"),
        ("ssh n003 'ls `reboot`'", "needs a shell"),
        ("ssh n003 ls *", "needs a shell ('*')"),
        ("ssh n003 'ls\nreboot'", "needs a shell"),
        ("ssh n003 dmesg | sh", "pipes into sh"),
        ("ssh n003 dmesg | grep -f /etc/shadow x", "pipes into grep"),
        ("ssh n003 dmesg | grep -E '^(NCCL|UCX)_'", "pipes into grep"),
        ("ssh n003 dmesg |", "not a complete command"),
        ("ssh n003 'ls", "not a complete command"),
        ("ssh n003 LD_PRELOAD=/tmp/x ls", "login shell"),
        ("ssh n003 ulimit -l", "ulimit depends on a login shell on n003"),
        ("ssh n003 env | grep NCCL", "env depends on a login shell"),
        ("ssh n003", "only logs in"),
        ("ssh other uptime", "other is not a node"),
        ("ssh -o ProxyCommand=x other uptime", "other is not a node"),
        ("ip -s link", "names no node"),
        ("", "not a complete command"),
    ],
)
def test_what_needs_a_shell_or_another_place_is_refused(model: Model, text: str, why: str) -> None:
    with pytest.raises(CannotRunError) as refused:
        step_command(model, text)
    assert why in str(refused.value)
    assert str(refused.value).endswith(".")


@pytest.mark.parametrize("start", [{"lab": "2x1"}, {"options": {"transport": "local"}}], ids=["lab", "local"])
def test_on_this_machine_a_step_runs_on_the_node_that_it_names(
    make_model: Callable[[], ModelMaker], start: dict[str, Any]
) -> None:
    model = make_model().start(["n001", "n003"], **start).model()
    for node in ("n003", "n001"):
        found = step_command(model, on_node(node, "ip -s link | grep 'a b'", model))
        assert (found.node, found.argv, found.greps) == (node, ("ip", "-s", "link"), (LineFilter(("a b",)),))
    with pytest.raises(CannotRunError, match="names no node"):
        step_command(model, "ip -s link")
    with pytest.raises(CannotRunError, match="n009 is not a node"):
        step_command(model, "ssh n009 ip -s link")


def test_a_recording_keeps_commands_and_their_output(make_model: Callable[[], ModelMaker]) -> None:
    maker = make_model().start(["n001"])
    maker.add("command", number=1, node="n001", command="ssh n001 uptime", argv=["uptime"])
    run: Any = maker.model().commands.latest("ssh n001 uptime")
    assert run.end is None
    maker.add("output", number=1, output="up\n" * 9, exit=0)
    maker.add("output", number=1, output="again", exit=1)
    maker.add("output", number=2, output="of no command", exit=1)
    model = maker.model()
    run = model.commands.latest("ssh n001 uptime")
    assert (run.end.exit, len(run.end.output.splitlines())) == (0, 9)
    texts = [line.text.strip() for line in model.log]
    assert texts[:-1] == ["you run: uptime", *["up"] * 4, "and 5 more lines: see the findings"]
    assert texts[-1] == "uptime: exit status 0, 9 lines"


def test_the_latest_commands_are_kept(make_model: Callable[[], ModelMaker]) -> None:
    maker = make_model().start(["n001"])
    for number in range(MOST_COMMANDS + 1):
        maker.add("command", number=number, node="n001", command=f"ssh n001 ls /{number}", argv=["ls"])
    log = maker.model().commands
    assert len(log) == MOST_COMMANDS
    assert log.latest("ssh n001 ls /0") is None
    assert log.latest("ssh n001 ls /1") is not None

"""The probe ``state``: what it reads here, forms of values that differ by nature, and what never leaves a node."""

import base64
import json
import zlib
from typing import Any

import pytest

from fabtui_node.probes import state
from fabtui_node.probes.state import State
from fabtui_node.system import login_state, netlink, sysfs
from fabtui_node.system.ethtool import Ethtool
from fabtui_node.system.network_state import NetworkState

KEY = "5e" * 16
SECRETS = ("hunter2", "s3cr3t-of-home", "tokentokentoken")


def facts_of(key: str = KEY) -> dict[str, str]:
    value = state.run({"key": key}, None, 10.0)
    facts: dict[str, str] = json.loads(zlib.decompress(base64.b64decode(value["state"])))
    return facts


def test_what_it_reads_here() -> None:
    facts = facts_of()
    assert len(facts) > 400
    assert all(len(value) <= state.LONGEST and "\n" not in value for value in facts.values())
    for key in ("sysctl.net.ipv4.tcp_rmem", "limit.open-files", "link.lo.mtu", "process.cpus", "mount./", "fs./.size"):
        assert key in facts
    assert facts["addr.lo.v4.0"].startswith("<ip:lo>/8")


def test_nothing_that_may_be_a_secret_leaves_the_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", SECRETS[0])
    monkeypatch.setenv("SITE_SETTING", SECRETS[1])
    monkeypatch.setenv("NCCL_API_KEY", SECRETS[2])
    monkeypatch.setenv("https_proxy", f"http://ada:{SECRETS[0]}@proxy:3128")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "eth0")
    facts, others = facts_of(), facts_of("00" * 16)
    assert not any(secret in json.dumps(facts) for secret in (*SECRETS, "ada"))
    assert facts["env.NCCL_SOCKET_IFNAME"] == "eth0"
    assert facts["env.https_proxy"].endswith("@proxy:3128")
    assert facts["env.HF_TOKEN"] != others["env.HF_TOKEN"], "without the key, a digest means nothing"
    assert facts["env.HF_TOKEN"] == facts_of()["env.HF_TOKEN"]


def hidden(text: str) -> str:
    return "#"


def test_options_of_mounts_and_parameters_of_the_kernel() -> None:
    options = "rw,vers=3.0,username=ada,password=hunter2,credentials=/root/x,size=64k"
    assert login_state.shown_options(options, hidden) == "credentials=# password=# rw size=64k username=# vers=3.0"


@pytest.mark.parametrize("word", ["token abc123", "hunter2"])
def test_words_of_the_command_line_of_the_kernel(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = {"/proc/cmdline": f"quiet iommu=pt site.password=hunter2 {word}"}
    monkeypatch.setattr(sysfs, "text", lambda path, limit=0: text.get(path))
    found = dict(login_state.files(hidden))
    assert found["cmdline.iommu"] == "iommu=pt"
    assert found["cmdline.site.password"] == "site.password=#"
    assert found["cmdline"] == "#"
    assert word not in json.dumps(found)


def test_what_differs_by_nature_is_replaced_by_its_form() -> None:
    read, network = State(b"k"), NetworkState()
    network.own = {"10.1.0.2": "eth0", "10.1.0.23": "eth1"}
    read.put("env.HOSTS", "n1 n10 10.1.0.2 10.1.0.23 10.1.0.234 52:54:00:12:34:56")
    read.put("route.254 10.1.0.2/32", "unicast dev eth0")
    read.put("mount./run/user/1000", "tmpfs size=123k")
    values = read.normal(network, ["n1"])
    assert values == {
        "env.HOSTS": "<host> n10 <ip:eth0> <ip:eth1> 10.1.0.234 <mac>",
        "route.254 <ip:eth0>/32": "unicast dev eth0",
        "mount./run/user/<n>": "tmpfs size=<memory>",
    }


def test_a_part_that_fails_costs_what_it_would_have_added() -> None:
    def broken() -> Any:
        yield "a", 1
        raise OSError(95, "not supported")

    read = State(b"k")
    read.part("rules", broken)
    read.part("links", lambda: iter([("b", 2)]))
    assert read.values == {"a": "1", "b": "2"}
    assert "not supported" in read.failed["rules"]


def test_what_changes_between_two_reads_is_left_out(tmp_path: Any) -> None:
    read = State(b"k")
    for name in ("fixed", "counter"):
        (tmp_path / name).write_text("1")
        read.file(name, str(tmp_path / name))
    (tmp_path / "counter").write_text("2")
    read.settle()
    assert read.values == {"fixed": "1"}


def test_tables_of_the_kernel_and_an_interface() -> None:
    names = {attributes[3] for _, attributes in netlink.dump(netlink.LINKS)}
    assert b"lo\0" in names
    assert list(netlink.dump(netlink.ADDRESSES))
    assert netlink.attributes(b"\x08\0\x01\0abcd\x03\0") == {1: b"abcd"}
    with Ethtool("lo") as interface:
        assert interface.features()["loopback"] is True
        assert (interface.count(), interface.names(), interface.values(0)) == (0, [], ())
    with Ethtool("none-such") as interface:
        assert (interface.driver(), interface.words("ring"), interface.features()) == ({}, None, {})

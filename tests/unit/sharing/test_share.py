"""`fabtui share`: nothing planted remains, and the copy diagnoses as the original does."""

import functools
import gzip
import json
import re
import zipfile
from collections.abc import Iterator
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui.cli import main as entry
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.importers.session import read_session
from fabtui.model.recording import read_events
from fabtui.model.session_model import Model
from fabtui.nodeset import fold
from fabtui.sharing.identities import Identities
from fabtui.sharing.rewriter import _FIELDS, _FIXED, Rewriter
from fabtui.sharing.session_file import SessionFile

Out = pytest.CaptureFixture[str]
RECORDINGS = Path(__file__).parents[3] / "tests" / "samples" / "sessions"
FAULTS = RECORDINGS / "h200x8-lab-2x4-faults.jsonl.gz"

#: Planted in a session, in fields and in texts; none may remain, in upper or lower case.
CANARIES = (
    *("n060", "n061", "n099", "leaf07", "gw1.dc.acme.example", "dc.acme.example", "spineA3", "loginbox"),
    *("alice", "mbrown", "carol_x", "secret-llm-7b", "teamspace", "proj-orca"),
    *("10.20.30.41", "10.20.30.42", "198.51.100.77", "fe80::526b:4bff:fec7:1234", "2001:db8:77::5", "fd12:3456::9"),
    *("0000:0000:0000:0000:0000:ffff:0a14:1e29", "fe80:0000:0000:0000:506b:4b03:00c7:1234"),
    *("50:6b:4b:c7:12:34", "0c-42-a1-b2-c3-d4", "80:00:02:08:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:c7:12:35"),
    *("506b:4b03:00c7:1234", "0x506b4b0300c71234", "506b4b0300c71234", "506b4b0300c71236", "2c90200423e6a"),
    *("2ade9297-526c-0ee5-ef8b-a3343b9d853d", "3d1219c7c4c5404aaa1f6d2a48adfda4", "MT2113X04455", "1653924120279"),
    *("1324720001234", "orca/train.py", "hFQm1VYhbKNLWcTmQ5bkYGjhZzQ5ryBqkqOSbE2yq5Y"),
)


def canary_events() -> Iterator[dict[str, Any]]:
    nodes = ["n060", "n061"]
    options = {
        "hosts": nodes,
        "probes": ["p2p"],
        "origin": "nodes of job 4711: n[060-061] (squeue)",
        "ssh_config": "/home/mbrown/.ssh/orca_config",
        "via": "kubectl exec -n teamspace -i {node} --",
        "placements": {"n060": ["--jobid=4711"]},
    }
    yield {"kind": "start", "nodes": nodes, "options": options, "version": "0.2.0"}
    yield {"kind": "log", "level": "info", "text": "Could not resolve hostname gw1.dc.acme.example: not known"}
    yield {
        "kind": "log",
        "level": "info",
        "text": "user@loginbox: key SHA256:hFQm1VYhbKNLWcTmQ5bkYGjhZzQ5ryBqkqOSbE2yq5Y",
    }
    for at, node in enumerate(nodes):
        yield {"kind": "node", "node": node, "state": "ready", "backend": "asyncssh"}
        gpu = {"uuid": "GPU-2ade9297-526c-0ee5-ef8b-a3343b9d853d", "serial": 1324720001234 + at, "name": "NVIDIA H200"}
        value = {
            "host": f"{node}.dc.acme.example",
            "nics": [
                {
                    "name": "ib0",
                    "mac": "80:00:02:08:fe:80:00:00:00:00:00:00:50:6b:4b:03:00:c7:12:35",
                    "addresses": [{"address": f"10.20.30.{41 + at}", "prefix": 24}, {"address": "2001:db8:77::5"}],
                },
                {"name": "eth0", "mac": "50:6b:4b:c7:12:34"},
            ],
            "gpus": [{**gpu, "processes": [{"user": "alice", "pid": 77, "name": "python3"}]}],
            "env": {
                "SLURM_JOB_NAME": "secret-llm-7b",
                "NCCL_HOSTID": f"x-{node}",
                "PYTHONPATH": "/home/alice/orca/train.py",
            },
        }
        yield {"kind": "inventory", "node": node, "value": value}
    machine = {
        "identity": {"machine_id": "3d1219c7c4c5404aaa1f6d2a48adfda4"},
        "sessions": [{"user": "carol_x", "pid": 5}],
    }
    yield {"kind": "look", "node": "n060", "probe": "host", "value": machine}
    rdma = {
        "cas": [{"node_guid": "506b:4b03:00c7:1234", "gids": ["0000:0000:0000:0000:0000:ffff:0a14:1e29"]}],
        "fabric": {
            "leaves": {
                "0x506b4b0300c71234": {"guid": "0x506b4b0300c71236", "name": "MF0;leaf07:MQM8700/U1", "port": 3}
            },
            "below": [{"guid": "0x2c90200423e6a", "node": "n061 mlx5_0", "peer": {"guid": "1", "name": "spineA3"}}],
        },
        "raw": 'switchguid=0x2c90200423e6a(2c90200423e6a)\nS-506b4b0300c71236 "leaf07"\nSerial Number: MT2113X04455\n',
    }
    yield {"kind": "look", "node": "n060", "probe": "ibfabric", "value": rdma}
    yield {"kind": "look", "node": "n061", "probe": "gpus", "value": {"gpus": [{"serial": "1653924120279"}]}}
    yield {"kind": "look", "node": "n061", "probe": "slurm", "value": {"reason": "bad IB [mbrown@2025-11-02T10:00:00]"}}
    texts = (
        "n060 to N061.dc.acme.example via 10.20.30.42:4791 and n[060-061]-ib, n099 was not asked",
        "gid fe80:0000:0000:0000:506b:4b03:00c7:1234 lid 5, 0c-42-a1-b2-c3-d4 at fe80::526b:4bff:fec7:1234: lost",
        "peer [fd12:3456::9]:4791, 198.51.100.77/32; GPU serial 1653924120279 of /home/alice/orca/train.py by ALICE",
        "proj-orca: from loginbox by carol_x; 506b4b0300c71234 10.20.30.41.",
    )
    for at, text in enumerate(texts):
        one = {
            "layer": "p2p",
            "src": "n060:0",
            "dst": "n061:0",
            "verdict": "failed",
            "error": text,
            "raw": text,
            "attempts": at + 1,
        }
        yield {"kind": "measured", "measurements": [one]}
    yield {"kind": "acknowledged", "finding": "x", "title": "n060:0 > n061:0", "note": "alice knows"}
    yield {
        "kind": "output",
        "number": 1,
        "output": "inet 10.20.30.41/24 ether 50:6b:4b:c7:12:34 ~alice/x ~/orca/train.py\n",
    }


@pytest.fixture(name="session")
def _session(tmp_path: Path) -> Path:
    path = tmp_path / "20261123T000000Z-n060-n061.jsonl.gz"
    lines = [json.dumps({"seq": at, "time": 1795406614.0 + at, **event}) for at, event in enumerate(canary_events())]
    path.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines).encode()))
    return path


def assert_clean(text: str) -> None:
    remaining = [canary for canary in CANARIES if canary.lower() in text.lower()]
    assert remaining == []


def test_none_of_the_planted_names_remains_in_the_copy(session: Path, capsys: Out) -> None:
    before = session.read_bytes()
    assert entry.main(["share", str(session), "--also", "proj-orca", "--salt", "s", "--yes"]) == 0
    assert session.read_bytes() == before
    (copy,) = [path for path in session.parent.iterdir() if path != session]
    assert_clean(copy.name)
    text = gzip.decompress(copy.read_bytes()).decode()
    assert_clean(text)
    assert copy.stat().st_mode & 0o777 == 0o600
    model = Model()
    for event in read_events(copy):
        model.apply(event)
    assert len(model.nodes) == 2
    out = capsys.readouterr().out
    for kind in (
        "nodes and hosts",
        "users",
        "IPv4 addresses",
        "IPv6",
        "MAC",
        "GUIDs",
        "UUIDs",
        "serial numbers",
        "paths",
    ):
        assert f"  {kind}" in out
    for what in ("note", "output of a command"):
        assert f"free text ({what}) in 1 place" in out


@pytest.mark.parametrize("form", ["csv", "json"])
def test_a_snapshot_is_shared_as_well(session: Path, form: str, capsys: Out) -> None:
    snapshot, copy = session.with_name(f"s.{form}"), session.with_name(f"copy.{form}")
    entry.main(["replay", str(session), "--text", f"--{form}", str(snapshot)])
    assert entry.main(["share", str(snapshot), "-o", str(copy), "--also", "proj-orca", "--yes"]) == 0
    text = copy.read_text()
    if form == "csv":
        # A CSV has no field with users and serial numbers: in texts they look like any word.
        assert [name for name in ("n060", "n061", "n099", "10.20.30.4", "alice", "0300c7") if name in text] == []
    else:
        assert_clean(text)
    assert entry.main(["read", str(copy)]) == 0


@pytest.mark.slow
@pytest.mark.parametrize("form", ["recording", "csv", "json"])
def test_the_copy_has_the_same_findings(tmp_path: Path, form: str, capsys: Out) -> None:
    source, copy = FAULTS, tmp_path / "copy"
    if form != "recording":
        source = tmp_path / f"s.{form}"
        entry.main(["replay", str(FAULTS), "--text", f"--{form}", str(source)])
    assert entry.main(["share", str(source), "-o", str(copy), "--salt", "s", "--yes"]) == 0
    assert "reads back with the same" in capsys.readouterr().out
    identities = Identities()
    identities.gather({"nodes": ["n000", "n001"]})
    rewriter = Rewriter(identities, b"s")
    before, after = (diagnose(read_session(str(path))).findings for path in (source, copy))
    assert before
    expected = [(one.rule.id, one.subject.kind, rewriter.text(one.subject.name)) for one in before]
    assert sorted(expected) == sorted((one.rule.id, one.subject.kind, one.subject.name) for one in after)


def test_names_keep_shape_order_and_sets() -> None:
    names = [f"rack{rack}-n{node:03}.cluster.example" for rack in (1, 2) for node in (8, 9, 10)]
    identities = Identities()
    identities.gather({"nodes": names})
    rewriter = Rewriter(identities, b"s")
    made = [rewriter.text(name) for name in names]
    assert made == sorted(made)
    assert len(set(made)) == len(names)
    assert rewriter.text(fold(names)) == fold(made)
    assert re.fullmatch(r"[a-z]{4}\d+-[a-z]\d{3}\.[a-z]{7}\.[a-z]{7}", made[0])
    # The short name, and a node that no field names.
    assert rewriter.text("rack1-n008") == made[0].partition(".")[0]
    assert "n011" not in rewriter.text("rack1-n011 is down")


def test_the_same_salt_gives_the_same_names_and_another_one_others() -> None:
    def shared(key: bytes) -> str:
        identities = Identities()
        identities.gather({"nodes": ["n060"], "user": "alice"})
        return Rewriter(identities, key).text("n060 alice 10.1.2.3 GPU-2ade9297-526c-0ee5-ef8b-a3343b9d853d")

    assert shared(b"a") == shared(b"a") != shared(b"b")


def test_addresses_keep_their_subnets_and_gids_their_addresses() -> None:
    rewriter = Rewriter(Identities(), b"s")
    one, other, far = (rewriter.text(f"10.1.{net}") for net in ("2.3", "2.77", "9.3"))
    assert one.rpartition(".")[0] == other.rpartition(".")[0] != far.rpartition(".")[0]
    assert one.startswith("10.")
    assert rewriter.text("10.1.2.0/24") == one.rpartition(".")[0] + ".0/24"
    # The GID of a RoCE port holds its address, that of an InfiniBand port its GUID.
    digits = "".join(f"{int(part):02x}" for part in one.split("."))
    assert rewriter.text("0000:0000:0000:0000:0000:ffff:0a01:0203").replace(":", "").endswith(digits)
    guid = rewriter.text("0x506b4b0300c71234")
    assert guid.startswith("0x506b4b")
    assert rewriter.text("fe80:0000:0000:0000:506b:4b03:00c7:1234").replace(":", "").endswith(guid[2:])
    assert rewriter.text("506b:4b03:00c7:1234").replace(":", "") == guid[2:]


def test_the_pseudonym_of_a_public_address_is_nobodys() -> None:
    rewriter = Rewriter(Identities(), b"s")
    real = ["192.0.2.2", "207.67.123.177", "8.8.8.8", "2a02:8071:1:2:3:4:5:6", "2001:db8::5", "203.0.113.9", "10.1.2.3"]
    made = [rewriter.text(text) for text in real]
    assert not any(ip_address(text).is_global for text in made)
    assert len(set(made)) == len(real)
    assert made[0].startswith("192.0.2."), "documentation stays documentation"
    places = (*map(ip_network, ("198.51.100.0/24", "203.0.113.0/24")), ip_network("198.18.0.0/15"))
    assert all(any(ip_address(text) in place for place in places) for text in made[1:3]), made
    near = rewriter.text("207.67.123.9")
    assert near != made[1]
    assert near.rpartition(".")[0] == made[1].rpartition(".")[0], "subnets stay subnets"


@pytest.mark.parametrize(
    "text",
    [
        *("127.0.60.10", "::1", "0000:3b:00.0", "std::string", "c10d::TCPStore", "12:34:56", "NCCL 2.28.9+cuda13.0"),
        *("1795406614148522", "2026-11-23T04:04:12.339Z", "NET/IB/0/GDRDMA", "96.00.A5.00.1A", "0-63", "mlx5_0:1"),
    ],
)
def test_what_identifies_nobody_stays(text: str) -> None:
    assert Rewriter(Identities(), b"s").text(text) == text


def test_what_may_be_a_name_is_listed(session: Path, tmp_path: Path, capsys: Out) -> None:
    event = {
        "kind": "log",
        "level": "info",
        "text": "cannot read /lustre/proj9/data on store.acme.com",
        "seq": 99,
        "time": 1795406700.0,
    }
    lines = gzip.decompress(session.read_bytes()) + json.dumps(event).encode() + b"\n"
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes(lines)
    assert entry.main(["share", str(plain), "--yes"]) == 0
    out = capsys.readouterr().out
    assert "  /lustre/proj9/data (1 place)\n" in out
    assert "  store.acme.com (1 place)\n" in out


def test_nothing_is_overwritten_and_nothing_is_written_unasked(session: Path, tmp_path: Path, capsys: Out) -> None:
    other = tmp_path / "other"
    other.write_text("mine")
    folder = tmp_path / "folder"
    folder.mkdir()
    with zipfile.ZipFile(folder / "two.zip", "w") as archive:
        for name in ("a", "b"):
            archive.writestr(name, "{}")
    for words, expected in (
        ([str(session), "-o", str(session)], "is the file to share and is not overwritten"),
        ([str(session), "-o", str(other)], "is already there and is not overwritten"),
        ([str(session)], "standard input is not a terminal: add --yes"),
        ([str(other)], "expected a recording, or a CSV or JSON snapshot of fabtui"),
        ([str(tmp_path / "none")], "cannot read"),
        (["-"], "not standard input"),
        ([str(folder)], "a folder or an archive; share takes one file, unpack it first"),
        ([str(folder / "two.zip")], "a folder or an archive; share takes one file, unpack it first"),
    ):
        assert entry.main(["share", *words]) == 2, words
        error = capsys.readouterr().err
        assert expected in error
        assert error.count("\n") == 1
    assert other.read_text() == "mine"
    assert len(list(tmp_path.iterdir())) == 3


def test_a_damaged_recording_is_shared_up_to_the_damage(session: Path, tmp_path: Path, capsys: Out) -> None:
    lines = gzip.decompress(session.read_bytes()).splitlines(keepends=True)
    plain = tmp_path / "plain.jsonl"
    plain.write_bytes(b"".join(lines[:4]) + b"{alice n060}\n" + b"".join(lines[4:]))
    assert entry.main(["share", str(plain), "-o", str(tmp_path / "copy"), "--yes"]) == 0
    assert "line 5 of the recording is not an event" in capsys.readouterr().out
    assert len(list(read_events(tmp_path / "copy"))) == 4


def test_names_in_outputs_of_infiniband_tools_are_recognised_without_fields() -> None:
    samples = sorted((RECORDINGS.parent / "ibsim").glob("*.txt"))
    texts = [path.read_text() for path in samples if path.name != "00_topology.net"]
    identities = Identities()
    for text in texts:
        identities.gather({"output": text})
    assert identities.hosts >= {"leaf1", "leaf2", "spine1", "n060", "n061", "n062", "n063"}
    assert not {"mlx5_0", "errors", "ca", "switch"} & identities.hosts
    rewriter = Rewriter(identities, b"s")
    shared = "".join(map(rewriter.text, texts))
    assert [name for name in ("leaf1", "spine1", "n062", "10.60.0.1") if name in shared] == []


def _planted(value: Any, text: str) -> Iterator[Any]:
    """Yield copies of a value, each with a text in place of another string."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        for changed in [text] if isinstance(one, str) else _planted(one, text):
            copy = value.copy()
            copy[key] = changed
            yield copy


def test_a_name_remains_in_no_field() -> None:
    """A state in a result of the user's own probe may hold anything, at any level."""
    text = "mounted from 10.20.30.41 on n060 by alice: /home/alice/orca/train.py, n061ib0 of myAliceDir, ibn060"
    every = [*canary_events()]
    own = dict.fromkeys(sorted(_FIXED), "x") | {"more": [{"state": {"mode": "x"}, "layers": ["x"]}]}
    every.append({"kind": "look", "node": "n060", "probe": "own", "value": own})
    every.append({"findings": [{"rule": "x", "severity": "x"}], "software": "x", "format": "x"})
    identities = Identities(("proj-orca",))
    identities.gather(every)
    rewriter = Rewriter(identities, b"s")
    planted = [copy for event in every for copy in _planted(event, text)]
    assert len(planted) > 80
    for copy in planted:
        assert_clean(json.dumps({**rewriter.value(copy), "raw": "", "output": ""}))


#: What may be around a name in the text of a tool.
_AROUND = st.sampled_from([*" :=/-._@('\",|+#\n", "", r"\n", r"\t"])
_HIDDEN = (
    *("n060", "alice", "carol_x", "secret-llm-7b", "10.20.30.41", "mac:50:6b:4b:c7:12:34", "0c-42-a1-b2-c3-d4"),
    *("gid fe80::526b:4bff:fec7:1234", "GPU-2ade9297-526c-0ee5-ef8b-a3343b9d853d", "guid:506b:4b03:00c7:1234"),
    *("0x506b4b0300c71234", "/home/alice/orca/train.py", "ibn060", "n061ib0", "myAliceDir", "MT2113X04455"),
)
_TEXTS = st.lists(st.tuples(_AROUND, st.sampled_from(_HIDDEN), _AROUND).map("".join), max_size=3).map(" ".join)
_KEYS = st.one_of(st.sampled_from(sorted(_FIXED | _FIELDS)), _TEXTS)
_VALUES = st.recursive(
    st.one_of(_TEXTS, st.integers(), st.none()),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_KEYS, inner, max_size=3)),
)


@given(_VALUES)
def test_a_name_remains_nowhere_in_any_value(value: Any) -> None:
    assert_clean(json.dumps(_rewriter_of_canaries().value(value), ensure_ascii=False))


@functools.cache
def _rewriter_of_canaries() -> Rewriter:
    identities = Identities(("proj-orca",))
    identities.gather([*canary_events()])
    return Rewriter(identities, b"s")


def test_words_of_fabtui_stay_where_a_name_is_the_same() -> None:
    identities = Identities()
    identities.gather({"nodes": ["ready", "p2p"], "user": "gpu"})
    event = {"kind": "node", "state": "ready", "layer": "p2p", "verdict": "ok", "rule": "FT031", "version": "0.2.0"}
    assert Rewriter(identities, b"s").value(event) == event


def test_addresses_that_differ_do_so_afterwards_also_when_nobodys_networks_are_used_up() -> None:
    rewriter = Rewriter(Identities(), b"s")
    real = [f"131.{at >> 8}.{at & 255}.9" for at in range(600)] + ["10.163.75.91", "198.18.7.9", "192.0.2.9"]
    made = [rewriter.text(text) for text in (*real, real[0])]
    assert len(set(made)) == len(real)
    assert made[0] == made[-1]
    places = [ip_network(text) for text in ("192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24", "198.18.0.0/15")]
    counts = [sum(ip_address(text) in place for text in made[:600]) for place in places]
    assert counts == [1, 1, 1, 512]
    assert all(text.startswith("10.") for text in made[515:600])


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        *(
            ("up on n060ib0 and ibn060", "n060"),
            ("N060IB0", "n060"),
            ("xn060y12n060", "n060"),
            ("is alice2 in", "alice"),
        ),
        *(
            ("myAliceDir", "alice"),
            ("2alice", "alice"),
            ("dir%3Dalice%2F", "alice"),
            ("SN1653924120279Z", "1653924120279"),
        ),
        *(("ofRack1", "rack1"), ("ALICE07", "alice")),
        *((r"'cannot open\nalice\n'", "alice"), (r"CORP\n060", "060"), ("mac:50:6b:4b:c7:12:34", "c7:12:34")),
    ],
)
def test_names_within_words(text: str, secret: str) -> None:
    identities = Identities()
    identities.gather({"nodes": ["n060", "rack1"], "user": "alice", "serial": "1653924120279"})
    assert secret not in Rewriter(identities, b"s").text(text).lower()


@pytest.mark.parametrize("text", ["malice", "alicebob", "n0601", "xn0600ib", "ALICEdir", "chalices"])
def test_words_that_hold_a_name_by_chance(text: str) -> None:
    identities = Identities()
    identities.gather({"nodes": ["n060"], "user": "alice"})
    made = Rewriter(identities, b"s").text(text)
    # A number of the form of a node is one that no field names.
    assert made == text or text.startswith("n0601")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("mac 9c63.c0aa.bb03 at eth0", "aa.bb03"),
        ("git clone https://carol:hunter2@git.example.org/x", "hunter2"),
        ("mail joe.doe@corp.com for help", "joe.doe"),
        ("uid=1001(dora) gid=100(staffx)", "dora"),
        ("redirect=%2Fhome%3Dalice%2Fx", "alice"),
        ("token hf_abcdefghijklmnopqrstuv", "hijklmn"),
        ("AKIAIOSFODNN7EXAMPLE", "IOSFODNN7"),
        ("Authorization: Bearer abc.def-ghi123", "def-ghi"),
        ("WANDB_API_KEY=0011aabbzz", "0011aabbzz"),
        ("export DB_PASSWORD='swordfish'", "swordfish"),
    ],
)
def test_accounts_and_tokens_in_texts(text: str, secret: str) -> None:
    identities = Identities()
    identities.gather({"user": "alice", "text": text})
    assert secret not in Rewriter(identities, b"s").text(text)


_PEM = "-----BEGIN OPENSSH PRIVATE KEY-----{0}Proc-Type: 4,ENCRYPTED{0}HUNTER2{0}-----END OPENSSH PRIVATE KEY-----"


@pytest.mark.parametrize(
    "value",
    [
        {"argv": ["train.py", "--token", "HUNTER2"]},
        {"argv": ["curl", "-H", "Authorization:", "Bearer", "HUNTER2"]},
        {"argv": ["curl", "-u", "bob:HUNTER2"]},
        {"argv": ["sshpass", "-p", "HUNTER2", "ssh", "x"]},
        {"password": "HUNTER2"},
        {"apiToken": ["HUNTER2"]},
        {"env": {"HF_TOKEN": "HUNTER2"}},
        {"env": [{"name": "HF_TOKEN", "value": "HUNTER2"}]},
        *(
            "password=HUNTER2",
            "run --token HUNTER2 now",
            "--api-key=HUNTER2",
            "WANDB_API_KEY: HUNTER2",
            "passwd:HUNTER2",
        ),
        *(
            '{"token": "HUNTER2"}',
            "{'api_token': 'HUNTER2'}",
            r'"{\"token\": \"HUNTER2\"}"',
            "<password>HUNTER2</password>",
        ),
        *(
            "Authorization: Basic HUNTER2",
            "Cookie: a=1; b=HUNTER2",
            "x-api-key: HUNTER2",
            "export A_PASSWORD='x HUNTER2'",
        ),
        *(
            "https://h/x?token=HUNTER2&a=1",
            "https://s3/x?X-Amz-Signature=HUNTER2",
            "https://h/x?v=1&sig=HUNTER2HUNTER2",
        ),
        *(
            "curl -u bob:HUNTER2 http://x",
            "sshpass -p HUNTER2 ssh x",
            "DB_PWD=HUNTER2",
            "see wandb.ai/HUNTER2/p/runs/1",
        ),
        *(
            "eyJhbGciOiJIUzI1NiJ9.HUNTER2HUNTER2.abcd",
            "AIzaHUNTER2HUNTER2",
            "npm_HUNTER2HUNTER2",
            "pypi-HUNTER2HUNTER2",
        ),
        *("https://hooks.slack.com/services/T0/HUNTER2", "see wandb.ai/x/HUNTER2/runs", "Basic HUNTER2+HUNTER2=="),
        *(_PEM.format("\n"), _PEM.format("\\n"), "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHUNTER2HUNTER2HUNTER2HUNTER2"),
        *(r"C:\Users\HUNTER2\x", "pod/hunter2 is pending", "Service Tag: HUNTER2", "serial number HUNTER2"),
        *({"fqdn": "hunter2.acme"}, {"namespace": "hunter2"}),
    ],
    ids=repr,
)
def test_a_secret_is_known_by_its_form_and_by_the_name_before_it(value: Any) -> None:
    identities = Identities()
    identities.gather(value)
    assert "hunter2" not in json.dumps(Rewriter(identities, b"s").value(value)).lower()


@pytest.mark.parametrize(
    ("value", "real"),
    [
        ({"name": "enx9c63c0aabb47", "mac": "9c:63:c0:aa:bb:47"}, "aabb47"),
        ("wlx9c63c0aabb47", "aabb47"),
        ("9c_63_c0_aa_bb_46", "aa_bb_46"),
        ("ip-10-77-88-91 lost", "77-88-91"),
        ("node_10_77_88_92", "77_88_92"),
        ({"address": "10.77.88.91", "text": "at 0x0a4d585b"}, "4d585b"),
    ],
)
def test_addresses_in_names_are_those_of_the_fields(value: Any, real: str) -> None:
    identities = Identities()
    identities.gather(value)
    made = Rewriter(identities, b"s").value(value)
    assert real not in json.dumps(made)
    if "mac" in value:
        assert made["name"] == f"enx{made['mac'].replace(':', '')}"


def test_a_copy_is_checked_for_remaining_identities_and_secrets(session: Path, capsys: Out) -> None:
    copy = session.with_name("copy.jsonl.gz")
    assert entry.main(["share", str(session), "-o", str(copy), "--yes"]) == 0
    assert "share --check COPY lists what still looks like one" in capsys.readouterr().out
    assert entry.main(["share", "--check", str(copy)]) == 0
    assert "0 texts that may be an identity or a secret\nfree text (note) in 1 place" in capsys.readouterr().out
    text = "--token HUNTER2 of gateway07 for eve@acme, /lustre/big/data at 8.8.8.8, aB3dEfGhIjKlMnOpQrStUvWxYz01"
    log = {"kind": "log", "level": "info", "text": text, "seq": 99, "time": 1795406700.0}
    copy.write_bytes(gzip.compress(gzip.decompress(copy.read_bytes()) + json.dumps(log).encode() + b"\n"))
    before = copy.read_bytes()
    assert entry.main(["share", "--check", str(copy)]) == 1
    out = capsys.readouterr().out
    for listed in ("HUNTER2", "eve", "acme", "8.8.8.8", "aB3dEfGhIjKlMnOpQrStUvWxYz01", "/lustre/big/data"):
        assert re.search(rf"  {listed} +1$", out, re.MULTILINE), listed
    assert copy.read_bytes() == before


def test_places_of_earlier_sessions_are_names_and_a_history_is_refused(tmp_path: Path) -> None:
    found = Identities()
    found.gather({"recurrence": {"moved_from": "n012:3 link 7", "stayed_after": "MT2230X01234"}})
    assert found.hosts == {"n012"}
    assert found.names == {"mt2230x01234": "serial"}
    path = tmp_path / "site.sqlite"
    for content in (b"SQLite format 3\0" + bytes(99), b'{"kind": "fabtui history", "format": 1}'):
        path.write_bytes(content)
        with pytest.raises(InputError, match="is never shared"):
            SessionFile(path)

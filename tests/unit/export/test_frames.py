import gzip
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import fabtui
from fabtui.cli.main import main
from fabtui.errors import InputError
from fabtui.export.frames import Frames

Maker = Callable[[], Any]
ROOT = Path(__file__).parents[3]
FAULTS = ROOT / "tests" / "samples" / "sessions" / "h200x8-lab-2x4-faults.jsonl.gz"
GOOD = ROOT / "tests" / "samples" / "sessions" / "h200x8-lab-2x4.jsonl.gz"
NAMES = ("pairs", "collectives", "facts", "findings", "nodes")
ARM = "NCCL_P2P_DISABLE=1"
HOSTILE = "n1\x1b[31m\u202e"


@pytest.fixture(scope="module")
def faults() -> Frames:
    return fabtui.load(FAULTS)


def frames(found: Frames) -> dict[str, pd.DataFrame]:
    return {name: getattr(found, name) for name in NAMES}


def test_pairs_have_status_and_value_apart(faults: Frames) -> None:
    p2p: Any = faults.pairs[faults.pairs["layer"] == "p2p"].set_index(["src", "dst"])
    assert len(p2p) == 56
    failed, slow = p2p.loc["n001:0", "n000:0"], p2p.loc["n000:0", "n000:3"]
    assert failed["verdict"] == "failed"
    assert math.isnan(failed["value"])
    assert (slow["verdict"], round(slow["value"], 2), slow["unit"], slow["bytes"]) == (
        "slow",
        1.96,
        "GB/s",
        100_000_000,
    )
    assert slow["usual"] == pytest.approx(359.8, abs=0.1)
    assert "NCCL 2.28.9" in slow["how"]
    assert list(p2p[p2p["verdict"] >= "slow"].index) == [
        *(("n000:0", "n000:3"), ("n000:1", "n001:2"), ("n001:0", "n000:0"))
    ]
    assert p2p["value"].min() > 1
    assert faults.pairs["time"].dt.tz is not None


def test_collectives_facts_findings_and_nodes(faults: Frames) -> None:
    whole = faults.collectives.query("group == 'all'").set_index("bytes")
    assert whole.loc[268435456, "busbw"] == pytest.approx(6.168, abs=0.001)
    assert (whole.loc[268435456, "ranks"], whole.loc[268435456, "verdict"]) == (8, "ok")
    assert not set(faults.pairs["layer"]) & {"busbw", "all_reduce"}
    facts = faults.facts.set_index(["fact", "node"])
    assert facts.loc[("gpus", "n000"), "value"] == "4 x H200"
    numbers = faults.facts[faults.facts["number"].notna()]
    assert len(numbers)
    assert (numbers["number"] == numbers["value"].astype(float)).all()
    assert list(faults.findings["rule"]) == ["pair-fails", "pair-fails", "pair-slow"]
    assert faults.findings["next"].iloc[0][:2] == (
        "ssh n000 ss -ltnp 'sport = :39505'",
        "ssh n000 sudo nft list ruleset",
    )
    assert list(faults.nodes["endpoints"]) == [4, 4]
    assert set(faults.nodes["hardware"]) == {"NVIDIA H200"}


def test_a_matrix_is_in_the_order_of_the_grid(faults: Frames) -> None:
    matrix: Any = faults.matrix("p2p")
    names = [f"n00{node}:{index}" for node in range(2) for index in range(4)]
    assert list(matrix.index) == list(matrix.columns) == names
    assert matrix.attrs["unit"] == "GB/s"
    assert math.isnan(matrix.loc["n000:0", "n000:0"])
    assert math.isnan(matrix.loc["n000:1", "n001:2"])
    verdicts = faults.matrix("p2p", of="verdict")
    assert (verdicts.loc["n000:1", "n001:2"], verdicts.loc["n000:0", "n000:1"]) == ("timeout", "ok")
    assert faults.matrix("busbw").loc["n000", "n001"] == pytest.approx(4.03, abs=0.01)
    with pytest.raises(InputError, match="there is no layer 'p3p'"):
        faults.matrix("p3p")
    with pytest.raises(InputError, match="no message of 8 bytes"):
        faults.matrix("p2p", 8)
    with pytest.raises(InputError, match="there is no session 'x'"):
        faults.matrix("p2p", session="x")


def test_the_worst_verdict_of_several_addresses_counts(make_model: Maker) -> None:
    maker = make_model().start(["n1", "n2"]).endpoints({"n1": 1, "n2": 1})
    for number, verdict in enumerate(("ok", "failed", "ok")):
        ends = {"src_addr": f"10.0.{number}.1", "dst_addr": f"10.0.{number}.2"}
        maker.measured("ping", "n1", "n2", verdict, unit="ms", **({"value": 1.0} if verdict == "ok" else {}), **ends)
    assert Frames({"s": maker.model()}, []).matrix("ping", of="verdict").loc["n1", "n2"] == "failed"


def test_arms_and_untested_pairs_have_rows(make_model: Maker) -> None:
    maker = make_model().start(["n1"]).endpoints({"n1": 3}).add("plan", arms=["NCCL_P2P_DISABLE=0", ARM])
    for arm, value in ((None, 50.0), (ARM, 10.0)):
        more = {} if arm is None else {"arm": arm}
        maker.measured("p2p", "n1:0", "n1:1", value=value, unit="GB/s", bytes=8, **more)
    maker.add("plan", untested=[["n1:0", "n1:2", "its GPU is in use"]])
    found = Frames({"s": maker.model()}, [])
    assert found.pairs.set_index("arm").loc[ARM, "value"] == 10.0
    assert found.matrix("p2p").loc["n1:0", "n1:1"] == 50.0
    assert found.matrix(f"p2p@{ARM}").loc["n1:0", "n1:1"] == 10.0
    untested = found.pairs[found.pairs["verdict"] == "untested"].iloc[0]
    assert (untested["dst"], untested["error"], math.isnan(untested["value"])) == ("n1:2", "its GPU is in use", True)


@pytest.mark.slow
def test_every_source_gives_the_same_columns_and_types(faults: Frames, make_model: Maker, tmp_path: Path) -> None:
    csv, json = tmp_path / "s.csv", tmp_path / "s.json"
    assert main(["replay", str(FAULTS), "--text", "--csv", str(csv), "--json", str(json)]) == 1
    others = {
        "csv": fabtui.load(csv),
        "json": fabtui.load(str(json)),
        "empty": Frames({"s": make_model().model()}, []),
        "none": Frames({}, []),
        "several": fabtui.load([FAULTS, GOOD, csv]),
    }
    for name, frame in frames(faults).items():
        for source, other in others.items():
            assert list(getattr(other, name).columns) == list(frame.columns), source
            kinds = [str(kind) for kind in frame.dtypes]
            assert [str(kind) for kind in getattr(other, name).dtypes] == kinds, (source, name)
            assert getattr(other, name).attrs["units"] == frame.attrs["units"]
    for source in ("csv", "json"):
        pd.testing.assert_frame_equal(others[source].matrix("p2p"), faults.matrix("p2p"))
        pd.testing.assert_frame_equal(others[source].collectives[["busbw"]], faults.collectives[["busbw"]])
    assert list(others["several"].pairs["session"].cat.categories) == [FAULTS.name, GOOD.name, "s.csv"]
    with pytest.raises(InputError, match="there are 3 sessions; name one"):
        others["several"].matrix()
    assert others["several"].matrix(session=GOOD.name).notna().sum().sum() == 56


def test_outputs_of_tools_are_a_session_or_readings(tmp_path: Path) -> None:
    docs = ROOT / "tests" / "samples" / "docs"
    ibstat = ROOT / "tests" / "samples" / "ibsim" / "ibstat_n061.txt"
    found = fabtui.load([docs / "ar.txt", ibstat])
    assert found.sessions == ["outputs"]
    assert found.collectives["busbw"].max() > 0
    assert found.readings[0]["kind"] == "ibstat"
    assert "1 readings" in repr(found)


@pytest.mark.parametrize(
    ("text", "problem"),
    [(None, "cannot read"), (b"nothing known\n", "not recognised"), (b"", "nothing in it"), (b"\x80\x05]q\x00.", "x")],
)
def test_what_cannot_be_read_is_one_clear_line(tmp_path: Path, text: bytes | None, problem: str) -> None:
    path = tmp_path / "x"
    if text is not None:
        path.write_bytes(text)
    with pytest.raises(InputError, match=problem):
        fabtui.load(path)
    with pytest.raises(InputError, match="no file given"):
        fabtui.load([])


def test_hostile_names_are_clean(make_model: Maker) -> None:
    maker = make_model().start([HOSTILE, "n2"]).endpoints({HOSTILE: 2, "n2": 0})
    maker.measured("p2p", f"{HOSTILE}:0", f"{HOSTILE}:1", "failed", error=HOSTILE)
    for frame in frames(Frames({"s": maker.model()}, [])).values():
        text = frame.to_csv()
        assert "\x1b" not in text
        assert "\u202e" not in text


def test_importing_fabtui_loads_nothing() -> None:
    check = "import sys, fabtui; sys.exit(any(n in sys.modules for n in ('pandas', 'numpy', 'fabtui.importers')))"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0


def test_of_a_damaged_recording_the_part_before_the_damage_is_loaded(tmp_path: Path) -> None:
    path = tmp_path / "damaged.jsonl"
    lines = gzip.decompress(FAULTS.read_bytes()).splitlines()
    path.write_bytes(b"\n".join([*lines[:-20], b'{"kind": "measured", "seq"', *lines[-20:]]))
    with pytest.warns(UserWarning, match="the part before it is loaded"):
        found = fabtui.load(path)
    assert len(found.nodes) == 2

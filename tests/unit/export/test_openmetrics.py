import os
import stat
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.samples import Sample

from fabtui.cli.main import main
from fabtui.diagnosis.diagnosis import diagnose
from fabtui.errors import InputError
from fabtui.export.formats import Exposition
from fabtui.export.openmetrics import MOST_FINDINGS, metrics_text
from fabtui.model.layers import Layer
from tests.conftest import replayed

Maker = Callable[[], Any]
RECORDINGS = sorted((Path(__file__).parents[3] / "tests" / "samples" / "sessions").glob("*.jsonl.gz"))
FAULTS = next(path for path in RECORDINGS if "faults" in path.name)
HOSTILE = 'n"1\\\n# EOF\n\x1b[31m\u202eevil{}} 7'


def samples(text: str) -> list[Sample]:
    """Return the series by the reference parser, which must agree with that of OpenMetrics."""
    found = [one for family in parser.text_string_to_metric_families(text) for one in family.samples]
    families = openmetrics.text_string_to_metric_families(text)
    same = [one for family in families for one in family.samples]
    assert [(one.name, one.labels, one.value) for one in found] == [(one.name, one.labels, one.value) for one in same]
    assert all(one.timestamp is None for one in found)
    keys = [(one.name, *sorted(one.labels.items())) for one in found]
    assert len(set(keys)) == len(keys)
    return found


def values(found: list[Sample], name: str, *labels: str) -> dict[Any, float]:
    return {tuple(one.labels[label] for label in labels): one.value for one in found if one.name == f"fabtui_{name}"}


def test_the_metrics_of_a_recording_are_its_results_in_base_units() -> None:
    found = samples(metrics_text(diagnose(replayed(FAULTS)), Exposition()))
    pairs = values(found, "pairs", "layer", "verdict")
    assert {verdict: n for (layer, verdict), n in pairs.items() if layer == "p2p"} == {
        **{"ok": 53, "slow": 1, "timeout": 1, "failed": 1},
        **{"untested": 0, "skipped": 0, "inconclusive": 0, "wrong": 0},
    }
    bandwidth = values(found, "class_bandwidth_bytes_per_second", "layer", "class", "bytes", "quantile")
    assert bandwidth["p2p", "same-node", "268435456", "0.5"] == pytest.approx(3.597e11, rel=0.001)
    assert {labels[2] for labels in bandwidth} == {"268435456"}
    latency = values(found, "class_latency_seconds", "layer", "class", "quantile")
    assert latency["latency", "same-node", "0.5"] == pytest.approx(7.87e-6, rel=0.01)
    busbw = values(found, "collective_busbw_bytes_per_second", "kind", "group", "bytes")
    assert busbw["all_reduce", "n000", "268435456"] == pytest.approx(3.392e11, rel=0.001)
    assert not any("+" in group for _, group, _ in busbw)
    assert values(found, "finding", "kind", "severity", "subject")["pair-fails", "bad", "n001:0 > n000:0"] == 1
    assert values(found, "endpoint_share_bad", "endpoint")["n000:0",] == pytest.approx(2 / 14)
    assert values(found, "node_state", "node", "state") == {("n000", "ready"): 1, ("n001", "ready"): 1}
    assert values(found, "run_exit_code") == {(): 1}
    assert not any("pair_" in one.name for one in found)


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.name)
def test_every_metric_has_help_and_type_and_the_same_session_the_same_bytes(path: Path) -> None:
    model = replayed(path)
    text = metrics_text(diagnose(model), Exposition())
    assert text == metrics_text(diagnose(model), Exposition())
    for family in parser.text_string_to_metric_families(text):
        assert family.type == ("summary" if family.name.startswith("fabtui_class_") else "gauge")
        assert family.documentation
    names = {one.name for one in samples(text)}
    units = ("_bytes_per_second", "_seconds", "_ratio", "_bytes", "_sum", "_count")
    plain = {"info", "pairs", "node_state", "finding", "findings", "endpoint_share_bad", "run_exit_code"}
    assert {name for name in names if not name.endswith(units)} == {f"fabtui_{name}" for name in plain} & names


def test_pairs_have_series_only_where_they_are_asked_for() -> None:
    model = replayed(FAULTS)
    found = samples(metrics_text(diagnose(model), Exposition(pairs=True)))
    pairs = values(found, "pair_bandwidth_bytes_per_second", "layer", "src", "dst", "class", "bytes")
    latest = model.latest(Layer.P2P, "n000:0", "n000:1")
    assert latest is not None
    assert latest.value is not None
    assert pairs["p2p", "n000:0", "n000:1", "same-node", "268435456"] == latest.value * 1e9
    # A pair without a value has none, which is not zero.
    assert not any(labels[:3] == ("p2p", "n000:1", "n001:2") for labels in pairs)
    bad = values(found, "pair_not_ok", "layer", "src", "dst", "verdict")
    assert bad["p2p", "n000:1", "n001:2", "timeout"] == 1
    assert values(found, "collective_busbw_bytes_per_second", "group", "bytes")["n000+n001", "268435456"] > 0


def test_the_number_of_series_does_not_grow_with_pairs_or_errors(make_model: Maker) -> None:
    nodes = [f"n{number:03}" for number in range(16)]
    maker = make_model().start(nodes).endpoints(dict.fromkeys(nodes, 2))
    names = [f"{node}:{index}" for node in nodes for index in range(2)]
    maker.pairs(names)
    for number, (src, dst) in enumerate(pairwise(names)):
        # Sizes and errors are different for each pair.
        error = f"error number {number}"
        maker.measured("world", src, dst, value=1.0 + number, unit="GB/s", bytes=4000 + number)
        maker.measured("p2p", src, dst, "failed", error=error)
    text = metrics_text(diagnose(maker.model()), Exposition())
    assert "error number" not in text
    # Endpoints, nodes, findings, and a constant number for layers and classes.
    assert len(samples(text)) < len(names) + len(nodes) + MOST_FINDINGS + 100


def test_hostile_names_are_data_in_labels_and_never_lines(make_model: Maker) -> None:
    twins = ("x" * 200 + "1", "x" * 200 + "2")
    maker = make_model().start([HOSTILE, *twins]).endpoints({HOSTILE: 2})
    maker.pairs([f"{HOSTILE}:0", f"{HOSTILE}:1"])
    maker.measured("p2p", f"{HOSTILE}:1", f"{HOSTILE}:0", "failed", error=HOSTILE)
    text = metrics_text(diagnose(maker.model()), Exposition(pairs=True, labels=(("fabric", HOSTILE),)))
    assert "\x1b" not in text
    assert "\u202e" not in text
    found = samples(text)
    assert {one.labels["fabric"] for one in found} == {'n"1\\ # EOF [31mevil{}} 7'}
    assert ('n"1\\ # EOF [31mevil{}} 7', "ready") in values(found, "node_state", "node", "state")
    # Two names that are equal once they are cut are one series: node_exporter refuses files with equal ones.
    assert len(values(found, "node_state", "node")) == 2


@pytest.mark.parametrize("label", ["rack1", "=rack1", "1a=b", "__a=b", "a-b=c", "layer=x", "node=x", "job=x"])
def test_a_label_that_cannot_be_used_is_refused(label: str) -> None:
    with pytest.raises(InputError, match=r"--prom-label: "):
        Exposition.of(False, [label])


def test_a_label_of_the_user_is_on_every_series() -> None:
    contents = Exposition.of(False, ["fabric=rack 1", 'site="a"'])
    for one in samples(metrics_text(diagnose(replayed(FAULTS)), contents)):
        assert (one.labels["fabric"], one.labels["site"]) == ("rack 1", '"a"')
    with pytest.raises(InputError, match="the label a is in use"):
        Exposition.of(False, ["a=1", "a=2"])


def test_the_file_of_replay_is_readable_by_node_exporter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "fabtui.prom"
    before = os.umask(0o077)
    try:
        assert main(["replay", str(FAULTS), "--text", "--prom", str(path), "--prom-label", "fabric=a"]) == 1
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert f"wrote {path}\n" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == [path]
    assert len(samples(path.read_text())) > 50


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--text", "--prom", "x.txt"), "names end in .prom"),
        (("--text", "--prom-pairs"), "--prom-pairs needs --prom FILE"),
        (("--text", "--prom-label", "a=b"), "--prom-label needs --prom FILE"),
        (("--prom", "x.prom"), "--prom of replay needs --text"),
        (("--text", "--prom", "/nowhere/x.prom"), "cannot write /nowhere/x.prom"),
    ],
)
def test_options_that_cannot_be_used_end_in_one_line(
    words: tuple[str, ...], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(FAULTS), *words]) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count("\n") == 1

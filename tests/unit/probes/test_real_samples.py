"""Parsers of probes on outputs that people have posted; these are not ours to ship, so they are read where they lie."""

from __future__ import annotations

import csv
import re
from collections import Counter
from typing import Any

import pytest

from fabtui_node.parsers.net import ping as ping_format
from fabtui_node.probes.rdma import ibstat

from .places import REAL

FOLDERS = ["ibstat", "ping"]


def index() -> list[dict[str, str]]:
    if not (REAL / "INDEX.csv").is_file():
        return []
    with (REAL / "INDEX.csv").open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["file"].partition("/")[0] in FOLDERS]


pytestmark = pytest.mark.skipif(not index(), reason="no real samples here (FABTUI_REAL_SAMPLES)")


def rows(folder: str) -> list[Any]:
    chosen = [row for row in index() if row["file"].startswith(folder + "/")]
    return [pytest.param(row["file"], row["expect"], id=row["file"]) for row in chosen] or [pytest.param("", "")]


def expected_value(expect: str, pattern: str) -> str | None:
    """Return the value in the index, or None."""
    found = re.search(pattern, expect)
    return found.group(1) if found else None


def equal(value: Any, expect: str, pattern: str) -> None:
    """Check a value against the index, if it has one."""
    wanted = expected_value(expect, pattern)
    if wanted is not None:
        assert type(value)(wanted) == value, f"{pattern} in {expect!r}"


@pytest.mark.parametrize(("name", "expect"), rows("ibstat"))
def test_ibstat(name: str, expect: str) -> None:
    parsed = ibstat.parse_ibstat((REAL / name).read_text())
    ports = [(ca["ca"], port) for ca in parsed["cas"] for port in ca["ports"]]
    equal(len(parsed["cas"]), expect, r"\bcas=(\d+)")
    equal(len(ports), expect, r"\bports=(\d+)")
    for key, pattern in (("Active", r"active=(\d+)"), ("Down", r"\bdown=(\d+)")):
        equal(sum(port["state"] == key for _, port in ports), expect, pattern)
    for key, pattern in (("InfiniBand", r"\bib=(\d+)"), ("Ethernet", r"ethernet=(\d+)")):
        equal(sum(port["link_layer"] == key for _, port in ports), expect, pattern)
    equal(sum(port["physical_state"] == "Disabled" for _, port in ports), expect, r"phys_disabled=(\d+)")
    down = expected_value(expect, r"down_ports=([\w,]+)")
    if down:
        assert {ca for ca, port in ports if port["state"] == "Down"} == set(down.split(","))
    rates = expected_value(expect, r"rates: ([0-9x, ]+)")
    if rates:
        wanted = {
            float(rate): int(count) for rate, _, count in (part.strip().partition("x") for part in rates.split(","))
        }
        assert Counter(port["rate"] for _, port in ports) == wanted
    for ca, lid in re.findall(r"(mlx5_\d+)\.base_lid=(\d+)", expect):
        assert dict(ports)[ca]["lid"] == int(lid)
    if re.search(r"(?<![.\w])base_lid=", expect) and len(ports) == 1:
        equal(ports[0][1]["lid"], expect, r"(?<![.\w])base_lid=(\d+)")
        equal(ports[0][1]["sm_lid"], expect, r"sm_lid=(\d+)")
    rate = expected_value(expect, r"(?:^|; )rate=(\d+)(?: for all|;|$)")
    if rate:
        assert {port["rate"] for _, port in ports} == {float(rate)}
    if "rate=unknown" in expect:
        assert ports[-1][1]["rate"] is None
    assert bool(parsed["errors"]) == ("mlx5_8" in expect and "error" in expect)
    if parsed["errors"]:
        assert "mlx5_8" in parsed["errors"][0]
    if 'GUIDs are the literal "..."' in expect:
        assert ports[0][1]["guid"] is None


def test_ports_that_are_not_used_do_not_count_as_broken() -> None:
    """One of four slow ports is in use, and two of eight fast ones are not: only these two are broken."""
    for name, wanted in (
        (
            "ibstat/h100-12ca-8ib400-3eth-down.txt",
            {("mlx5_2/1", "inconclusive"), ("mlx5_7/1", "inconclusive"), ("mlx5_8/1", "inconclusive")},
        ),
        ("ibstat/h100-12ca-all-roce-2-down.txt", {("mlx5_5/1", "failed"), ("mlx5_11/1", "failed")}),
        ("ibstat/h100-12ca-all-roce-active.txt", set()),
    ):
        judged = ibstat.judge(ibstat.parse_ibstat((REAL / name).read_text()))
        assert {(one["subject"], one["verdict"]) for one in judged} == wanted


@pytest.mark.parametrize(("name", "expect"), rows("ping"))
def test_ping(name: str, expect: str) -> None:
    row = ping_format.parse_ping((REAL / name).read_text())
    equal(row["sent"], expect, r"\btx=(\d+)")
    equal(row["received"], expect, r"\brx=(\d+)")
    loss = expected_value(expect, r"loss=([0-9.]+)%")
    if loss:
        assert row["loss"] == float(loss)
    assert row["duplicates"] == int(expected_value(expect, r"duplicates=(\d+)") or 0)
    average = expected_value(expect, r"\bavg=([0-9.]+)")
    if average:
        assert row["rtt_avg"] == float(average)
    times = expected_value(expect, r"min/avg/max=([0-9./]+)")
    if times:
        assert [row["rtt_min"], row["rtt_avg"], row["rtt_max"]] == [float(word) for word in times.split("/")]
    if row["received"] == 0:
        assert row["rtt_avg"] is None
    assert (row["error"] == "Destination Host Unreachable") == ("unreachable" in name)


def test_every_folder_is_used() -> None:
    assert {row["file"].partition("/")[0] for row in index()} == set(FOLDERS)

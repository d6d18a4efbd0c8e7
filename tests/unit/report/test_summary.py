import itertools
from collections.abc import Callable
from typing import Any

import pytest

from fabtui.diagnosis.diagnosis import diagnose
from fabtui.presentation.cell_levels import ASCII
from fabtui.report.document import Shown
from fabtui.report.grid import matrix
from fabtui.report.summary import summary
from fabtui.report.text import folded

Maker = Callable[[], Any]
NAMES = ["n0:0", "n0:1", "n1:0", "n1:1"]


def whole(make_model: Maker) -> Any:
    maker = make_model().start(["n0", "n1"]).endpoints({"n0": 2, "n1": 2}).pairs(NAMES)
    for src, dst in (("n0", "n1"), ("n1", "n0")):
        maker.measured("ping", src, dst, value=0.05, unit="ms", src_addr="10.0.0.1", dst_addr="10.0.0.2")
    for size in (1 << 16, 1 << 20):
        maker.measured("busbw", "all", "all", value=1.5, unit="GB/s", bytes=size)
    maker.measured("busbw", "n0", "n1", value=1.7, unit="GB/s", bytes=1 << 20)
    return maker.add("phase", name="done")


def test_a_good_session_reads_well(make_model: Maker) -> None:
    text = summary(diagnose(whole(make_model).model()))
    assert "2 nodes, 4 x CPU rank" in text
    assert "p2p, GB/s at 4 MiB; a row sends, a column receives" in text
    assert "ping: 2 of 2 address pairs answer, round trip 0.050 ms (median)" in text
    assert "The library reports TCP for 8 of 8 pairs between nodes" in text
    assert text.split("\n\n")[5].splitlines() == [
        "all_reduce",
        "  group  ranks    size  time us  algbw GB/s  busbw GB/s  wrong",
        "  all        -  64 KiB        -           -        1.50      -",
        "                 1 MiB        -           -        1.50      -",
        "  n0+n1      -   1 MiB        -           -        1.70      -",
    ]
    assert "same-node 2.00 GB/s" in text
    assert "not ok" not in text
    assert "not tested" not in text
    assert text.startswith("All 12 pairs are ok.\n\n")


def test_small_rates_of_collectives_name_their_unit(make_model: Maker) -> None:
    maker = whole(make_model)
    maker.measured("busbw", "n1", "n0", value=0.0196, unit="GB/s", bytes=1 << 20)
    table = next(part for part in summary(diagnose(maker.model())).split("\n\n") if part.startswith("all_reduce"))
    assert " 19.6M " in table
    assert table.endswith("\n  M: MB/s")


def test_the_grid_shows_each_pair_where_it_is(make_model: Maker) -> None:
    maker = whole(make_model)
    maker.measured("p2p", "n0:1", "n1:0", "failed", error="connect: refused", made=True, unit="GB/s")
    maker.measured("p2p", "n1:1", "n0:0", "timeout", error="no answer within 10 s", unit="GB/s")
    maker.measured("p2p", "n1:0", "n1:1", "ok", value=1.9, unit="GB/s", bytes=4 << 20)
    lines = matrix(maker.model(), ASCII)
    assert lines == [
        "       n0        n1",
        "          0    1    0    1",
        "  n0:0    . 2.00 2.00 2.00",
        "  n0:1 2.00    .    x 2.00",
        "  n1:0 2.00 2.00    . 1.90",
        "  n1:1    T 2.00 2.00    .",
        "  T timed out   x failed",
    ]


def test_a_slow_value_keeps_its_digits_in_line(make_model: Maker) -> None:
    names = [f"n0:{index}" for index in range(4)]
    maker = make_model().start(["n0"]).endpoints({"n0": 4}).pairs(names, value=100.0)
    maker.measured("p2p", "n0:1", "n0:2", value=20.0, unit="GB/s", bytes=4 << 20)
    lines = matrix(maker.model(), ASCII)
    assert lines == [
        "       n0",
        "          0     1     2     3",
        "  n0:0    .   100   100   100",
        "  n0:1  100     .  20.0!  100",
        "  n0:2  100   100     .   100",
        "  n0:3  100   100   100     .",
        "  ! slow",
    ]


def test_bad_pairs_are_listed_with_their_error(make_model: Maker) -> None:
    maker = whole(make_model)
    maker.measured("p2p", "n0:1", "n1:0", "failed", error="connect: refused", made=True, unit="GB/s")
    maker.measured("latency", "n0:1", "n1:0", "failed", error="connect: refused", unit="us")
    text = summary(diagnose(maker.model()), plain=True)
    at = text.splitlines().index("  1 n0:1 > n1:0 failed (1 pair)  FT017")
    assert text.splitlines()[at + 1] == "      connect: refused"
    assert text.count("connect: refused") == 1, "each fault is stated once"
    assert "not ok" not in text, "the finding explains it"


def world(maker: Any, names: list[str] = NAMES) -> Any:
    for src in names:
        for dst in names:
            if src != dst:
                maker.measured("world", src, dst, value=1.9, unit="GB/s", bytes=4 << 20)
    return maker


def test_a_world_like_p2p_is_one_line(make_model: Maker) -> None:
    text = summary(diagnose(world(whole(make_model)).model()))
    usual = "usual values same-node 1.90 GB/s, same-rail 1.90 GB/s, cross-rail 1.90 GB/s"
    reported = f"world: complete, 12 of 12 pairs ok; {usual}"
    assert f"\n\n{reported}\n\n" in text
    assert text.count("a row sends") == 1
    assert "\n  world " not in text, "the line has its usual values"
    both = world(whole(make_model)).measured("p2p", "n0:0", "n0:1", "failed", error="x")
    both.measured("world", "n0:0", "n0:1", "failed", error="x")
    assert "world: 1 of 12 pairs are not ok, as in p2p; usual values" in summary(diagnose(both.model()))


def test_a_world_unlike_p2p_has_its_grid_and_the_pair_is_named(make_model: Maker) -> None:
    maker = world(whole(make_model)).measured("p2p", "n0:1", "n1:0", "failed", error="connect: refused", unit="GB/s")
    maker.add("plan", suspects=[["n0:1", "n1:0", "both ends pass with others (...): it is the path between them"]])
    text = summary(diagnose(maker.model()), plain=True)
    assert "\np2p, GB/s at 4 MiB; a row" in text
    assert "\nworld, GB/s at 4 MiB; a row" in text
    assert "\n  world  same-node 1.90 GB/s" in text
    at = text.splitlines().index("  1 n0:1 > n1:0 failed (1 pair)  FT017")
    assert text.splitlines()[at + 1 : at + 5] == [
        "      both ends pass with others (...): it is the path between them",
        "      connect: refused",
        "      1 of 1 pair pass in the world communicator",
        "      cross-rail",
    ]


def test_a_world_without_p2p_is_a_grid(make_model: Maker) -> None:
    maker = world(make_model().start(["n0", "n1"]).endpoints({"n0": 2, "n1": 2}))
    text = summary(diagnose(maker.model()))
    assert "\nworld, GB/s at 4 MiB; a row" in text
    assert "p2p" not in text


def test_isolated_rails_are_reported_first(make_model: Maker) -> None:
    maker = world(whole(make_model))
    for src, dst in (("n0:0", "n1:1"), ("n0:1", "n1:0"), ("n1:1", "n0:0"), ("n1:0", "n0:1")):
        maker.measured("p2p", src, dst, "timeout", error="no answer", unit="GB/s")
    lines = summary(diagnose(maker.model())).splitlines()
    at = lines.index("findings: 1")
    assert lines[at + 1 : at + 4] == [
        "  1 rail-isolated (or PXN-only) fabric (4 pairs)  FT010",
        "      all 4 pairs across rails fail, all 4 pairs within a rail pass",
        "      4 of 4 pairs pass in the world communicator",
    ]


def test_both_directions_and_sizes_have_their_usual_values(make_model: Maker) -> None:
    maker = make_model().start(["n0"]).endpoints({"n0": 2})
    for src, dst in (("n0:0", "n0:1"), ("n0:1", "n0:0")):
        for size, value in ((8 << 20, 3.0), (256 << 20, 5.0)):
            maker.measured("p2p", src, dst, value=value, unit="GB/s", bytes=size, extra={"both_ways": value - 1})
    lines = summary(diagnose(maker.model())).splitlines()
    at = lines.index("usual values")
    assert lines[at + 1 : at + 4] == [
        "  p2p 8 MiB      same-node 3.00 GB/s",
        "  p2p 256 MiB    same-node 5.00 GB/s",
        "  bidirectional  same-node 4.00 GB/s each",
    ]
    assert any(line.startswith("p2p, GB/s at 256 MiB;") for line in lines)


def test_a_pair_that_is_bad_at_several_sizes_is_one_line(make_model: Maker) -> None:
    maker = make_model().start(["n0"]).endpoints({"n0": 2})
    for size in (8 << 20, 64 << 20, 256 << 20):
        maker.measured("p2p", "n0:0", "n0:1", value=1.0, unit="GB/s", bytes=size)
        verdict = "ok" if size == 8 << 20 else "failed"
        maker.measured("p2p", "n0:1", "n0:0", verdict, error="wrong data", unit="GB/s", bytes=size)
    text = summary(diagnose(maker.model()), plain=True)
    assert "\n      same-node; at 64 MiB, 256 MiB\n" in text
    assert text.count("wrong data") == 1


def test_messages_that_take_far_longer_are_notable(make_model: Maker) -> None:
    maker = whole(make_model)
    times = {"count": 20, "min": 1e-4, "median": 1e-4, "p99": 9.1e-4, "max": 1e-3}
    assert "notable" not in summary(diagnose(maker.model()))
    maker.measured("p2p", "n0:0", "n0:1", value=2.0, unit="GB/s", bytes=4 << 20, extra={"times": times})
    text = summary(diagnose(maker.model()), plain=True)
    assert "\n  n0:0 > n0:1  p2p at 4 MiB: p99 910 us, 9.10 x the median of 100 us\n" in text
    assert "not ok" not in text


def test_slow_messages_that_a_finding_names_are_stated_once(make_model: Maker) -> None:
    ends = [{"number": at, "node": "n0", "index": at, "kind": "gpu", "name": "GPU"} for at in (0, 1)]
    maker = make_model().start(["n0"]).add("endpoints", endpoints=ends)
    times = {"count": 20, "min": 1e-4, "median": 1e-4, "p99": 9.1e-4, "max": 1e-3}
    for src, dst in (("n0:0", "n0:1"), ("n0:1", "n0:0")):
        maker.measured("p2p", src, dst, value=2.0, unit="GB/s", bytes=4 << 20, extra={"times": times})
    text = summary(diagnose(maker.model()), plain=True)
    assert text.count("n0:0 > n0:1: some messages take far longer than the median") == 1
    assert "jitter:" not in text


def test_items_are_wrapped_and_commands_are_not(make_model: Maker) -> None:
    maker = whole(make_model)
    maker.measured("p2p", "n0:1", "n1:0", "failed", error="connect: " + "a long reason " * 20, unit="GB/s")
    lines = summary(diagnose(maker.model()), shown=Shown((), 240, 80)).splitlines()
    items = lines[lines.index("findings: 1") : lines.index("what to do now")]
    assert len([line for line in items if "long reason" in line]) == 3
    assert max(len(line) for line in items if "next: " not in line) <= 80
    assert folded("      next: " + "word " * 30, 80) == ["      next: " + "word " * 30]


def test_cpu_ranks_are_busy_and_one_line_is_enough(make_model: Maker) -> None:
    times = {"count": 20, "min": 1e-4, "median": 1e-4, "p99": 9.1e-4, "max": 1e-3}
    maker = whole(make_model)
    for dst in NAMES[1:]:
        maker.measured("p2p", "n0:0", dst, value=2.0, unit="GB/s", bytes=4 << 20, extra={"times": times})
    assert "\n  and 2 more pairs; --json has them all\n" in summary(diagnose(maker.model()))


def test_collectives_have_a_table_each(make_model: Maker) -> None:
    maker = make_model().start(["n0", "n1"]).endpoints({"n0": 2, "n1": 2})
    for layer in ("sendrecv", "busbw"):
        for size in (1 << 20, 1 << 24):
            extra = {"ranks": 4, "seconds": 123.4e-6, "algbw": 8.5, "wrong": 0, "algorithm": "RING/LL128"}
            maker.measured(layer, "all", "all", value=12.75, unit="GB/s", bytes=size, extra=extra)
    maker.measured("busbw", "all", "all", "failed", bytes=1 << 30, unit="GB/s", error="4 elements are wrong")
    text = summary(diagnose(maker.model()))
    parts = text.rstrip().split("\n\n")
    at = next(at for at, part in enumerate(parts) if part.startswith("all_reduce\n"))
    assert parts[at : at + 2] == [
        "all_reduce\n"
        "  group  ranks    size  time us  algbw GB/s  busbw GB/s  wrong  algorithm\n"
        "  all        4   1 MiB      123        8.50        12.8      0  RING/LL128\n"
        "                16 MiB      123        8.50        12.8      0  RING/LL128\n"
        "                 1 GiB        -           -           -      -              wrong data: 4 elements are wrong",
        "sendrecv\n"
        "  group  ranks    size  time us  algbw GB/s  busbw GB/s  wrong  algorithm\n"
        "  all        4   1 MiB      123        8.50        12.8      0  RING/LL128\n"
        "                16 MiB      123        8.50        12.8      0  RING/LL128",
    ]
    assert "not ok" not in text, "the table has it"


def test_a_long_table_keeps_what_is_not_ok(make_model: Maker) -> None:
    nodes = [f"n{number:02}" for number in range(70)]
    maker = make_model().start(nodes).endpoints(dict.fromkeys(nodes, 2))
    for node in nodes[:-1]:
        maker.measured("busbw", node, node, value=1.0, unit="GB/s", bytes=1024)
    text = summary(diagnose(maker.measured("busbw", "n69", "n69", "failed", error="wrong data", bytes=1024).model()))
    text = text[text.index("\nall_reduce\n") :]
    assert "\n  n58 " in text
    assert "\n  n59 " not in text
    assert "failed: wrong data\n  and 10 more rows; --table has them all\n" in text


def test_arms_are_in_the_summary_and_not_in_the_count(make_model: Maker) -> None:
    maker = whole(make_model).add("plan", arms=["A=0", "A=1"])
    maker.measured("p2p", "n0:0", "n0:1", "failed", error="x", unit="GB/s", arm="A=1")
    text = summary(diagnose(maker.model()))
    assert "\nA/B, medians; ratios to A=0\n" in text
    assert "1 of 1 not ok" in text
    assert text.startswith("All 12 pairs are ok.\n\n")


def test_what_could_not_be_tested_is_reported_with_the_reason(make_model: Maker) -> None:
    maker = make_model().start(["n0", "n1"]).endpoints({"n0": 2, "n1": 0}).pairs(["n0:0", "n0:1"])
    maker.add("plan", layer="p2p", untested=[["n0:0", "n1:-", "n1 is down"], ["n1:-", "n0:0", "n1 is down"]])
    text = summary(diagnose(maker.model()))
    assert "not tested\n  2 pairs: n1 is down\n" in text
    assert "  n1  failed  refused" in text


def test_rates_of_storage_are_a_table(make_model: Maker) -> None:
    maker = make_model().start(["n0", "n1", "n2"]).endpoints({"n0": 1, "n1": 1, "n2": 1})
    value = {"path": "/s/f", "filesystem": "nfs4 s:/", "how": "O_DIRECT"}
    maker.add("look", node="n0", probe="storage", value={**value, "alone": 700.4, "together": 320.0})
    maker.add("look", node="n1", probe="storage", value={**value, "together": 300.0, "problem": "no answer"})
    maker.add("look", node="n2", probe="storage", error="ValueError: /s/f is a FIFO; only regular files are read")
    text = summary(diagnose(maker.model()))
    assert "\nstorage, MB/s: read of /s/f\n" in text
    lines = [line.split() for line in text.splitlines()]
    assert ["n0", "700", "320", "O_DIRECT,", "nfs4", "s:/"] in lines
    assert ["n1", "-", "300", "O_DIRECT,", "nfs4", "s:/,", "no", "answer"] in lines
    assert any(line[:6] == ["n2", "-", "-", "ValueError:", "/s/f", "is"] for line in lines)
    assert "\n  all nodes at once: 620 MB/s\n" in text


def test_an_empty_session_is_reported_as_such(make_model: Maker) -> None:
    text = summary(diagnose(make_model().start(["n0"]).model()))
    assert "no endpoints" in text
    assert "nothing was measured" in text
    assert text.startswith("No pair was tested: ")


def test_a_large_grid_has_signs_in_place_of_numbers(make_model: Maker) -> None:
    names = [f"n0:{index}" for index in range(60)]
    maker = make_model().start(["n0"]).endpoints({"n0": 60}).measured("p2p", names[0], names[1], "failed", error="x")
    text = summary(diagnose(maker.model()), True, Shown((), 140))
    assert "  n0:0    x - - -" in text
    assert "x failed   - not tested" in text
    assert max(map(len, text.splitlines())) <= 140


def test_long_lists_are_cut_and_counted(make_model: Maker) -> None:
    names = [f"n0:{index}" for index in range(20)]
    maker = make_model().start(["n0"]).endpoints({"n0": 20})
    for dst in names[1:]:
        for src in names[:5]:
            if src != dst:
                maker.measured("latency", src, dst, "timeout", error="no answer", unit="us")
    text = summary(diagnose(maker.model()))
    assert "not ok: 91\n" in text
    assert "and 31 more rows" in text


@pytest.mark.parametrize("plain", [False, True])
def test_hostile_text_does_not_reach_the_terminal(make_model: Maker, plain: bool) -> None:
    evil = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202egnp\nsecond line"
    maker = whole(make_model)
    maker.measured("p2p", "n0:0", "n0:1", "failed", error=evil, unit="GB/s")
    maker.measured("ping", "n0", "n1", "failed", error=evil, src_addr=evil, dst_addr=evil)
    maker.add("node", node="n1", state="lost", text=evil, hint=evil)
    maker.add("look", node="n0", probe="ibstat", error=evil)
    maker.add("plan", layer="p2p", untested=[["n0:0", "n1:0", evil]])
    maker.add("plan", suspects=[["n0:0", "n0:1", evil]], arms=[evil, "A=1"])
    extra = {"algorithm": evil, "ranks": evil, "both_ways": evil, "times": {"count": evil}}
    maker.measured("alltoall", evil, evil, "failed", error=evil, transport=evil, extra=extra)
    maker.measured("p2p", "n0:0", "n0:1", value=1.0, unit="GB/s", transport=evil, arm="A=1", extra=extra)
    maker.add("start", version=evil, nodes=[], lab=evil, faults=[evil], options={})
    text = summary(diagnose(maker.model()), plain=plain)
    assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e", "\r"}
    assert "\nsecond line" not in text
    assert not plain or text.isascii()


def test_what_many_pairs_have_in_common_is_reported_once_with_the_next_command(make_model: Maker) -> None:
    nodes = [f"n{number}" for number in range(6)]
    maker = make_model().start(nodes).endpoints(dict.fromkeys(nodes, 2))
    for src, dst in itertools.permutations([f"{node}:{index}" for node in nodes for index in (0, 1)], 2):
        dead = src[:2] != dst[:2] and "n3:1" in (src, dst)
        error = {"error": "connect: timed out"} if dead else {"value": 2.0}
        maker.measured("p2p", src, dst, "timeout" if dead else "ok", unit="GB/s", **error)
    maker.measured("p2p", "n0:0", "n1:0", "timeout", error="no answer", unit="GB/s")
    maker.measured("p2p", "n1:0", "n0:0", "timeout", error="no answer", unit="GB/s")
    maker.measured("p2p", "n4:0", "n5:0", "timeout", error="no answer", unit="GB/s")
    maker.measured("p2p", "n4:0", "n4:1", "failed", error="no answer", unit="GB/s")
    maker.measured("p2p", "n5:0", "n5:1", "failed", error="no answer", unit="GB/s")
    lines = summary(diagnose(maker.model()), plain=True).splitlines()
    at = lines.index("findings: 5")
    assert lines[at + 1 : at + 4] == [
        "  1 n3:1 reaches no other node: check its NIC (20 pairs)  FT014",
        "      connect: timed out",
        "      next: ssh n3 ip -s link",
    ]
    assert not [line for line in lines if line.startswith("not ok: ")], "the findings explain all of them"


def test_nodes_of_which_the_same_is_reported_share_a_line(make_model: Maker) -> None:
    nodes = [f"n{number:02}" for number in range(12)]
    maker = make_model().start(nodes, options={"probes": ["ping"]})
    for node in nodes:
        maker.add("node", node=node, state="ready", text="", hint=None, backend="")
    maker.add("node", node="n03", state="failed", text="no answer on n03", hint="is it up?", backend="")
    text = summary(diagnose(maker.model()))
    assert "nodes\n  n[00-02,04-11]  ready\n  n03             failed  no answer\n" in text
    assert "no answer on n03: is it up?" in text


def test_endpoints_that_say_the_same_of_themselves_are_one_reason(make_model: Maker) -> None:
    maker = whole(make_model)
    why = "listen: cannot listen on 192.0.2.1"
    left_out = [["n0:0", "n1:0", f"n1:0: {why}"], ["n1:0", "n0:0", f"n1:0: {why}"], ["n0:0", "n1:1", f"n1:1: {why}"]]
    maker.add("plan", untested=left_out)
    text = summary(diagnose(maker.model()))
    assert f"not tested\n  3 pairs: n1:0, n1:1: {why}\n" in text


def test_a_fact_of_a_pair_stays_though_its_words_are_part_of_an_error(make_model: Maker) -> None:
    maker = whole(make_model).measured("p2p", "n0:0", "n0:1", "failed", error="no same-node path", unit="GB/s")
    text = summary(diagnose(maker.model()))
    assert "no same-node path" in text
    assert "    same-node" in text

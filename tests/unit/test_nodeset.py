import io
import sys
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabtui import nodeset
from fabtui.errors import InputError
from fabtui.nodeset import MAX_NODES, chosen_nodes, count, expand, expand_listed, fold, read_hosts
from tests.unit.mistakes import mistakes


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n060,n061", ["n060", "n061"]),
        ("n[060-063,070]", ["n060", "n061", "n062", "n063", "n070"]),
        ("n[3,1],b,a", ["n3", "n1", "b", "a"]),
        ("a,b,a", ["a", "b"]),
        ("n[0-10/5]", ["n0", "n5", "n10"]),
        ("r[1-2]n[01-02]x", ["r1n01x", "r1n02x", "r2n01x", "r2n02x"]),
        ("n[8-11]", ["n8", "n9", "n10", "n11"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[1-5]!n[2-3]", ["n1", "n4", "n5"]),
        ("n[1-5]&n[4-9]", ["n4", "n5"]),
        (" a , b ", ["a", "b"]),
        ("10.0.0.[1-2]", ["10.0.0.1", "10.0.0.2"]),
        ("2001:db8::1", ["2001:db8::1"]),
        ("[2001:db8::1]", ["2001:db8::1"]),
        ("fe80::1%eth0", ["fe80::1%eth0"]),
    ],
)
def test_sets_expand_in_the_order_they_are_written(text: str, names: list[str]) -> None:
    assert expand(text, "--nodes") == names


@pytest.mark.parametrize(("text", "word"), [*mistakes("nodes"), ("x" * 300, "not a host name")])
def test_what_is_no_set_of_nodes_is_reported_in_one_line(text: str, word: str) -> None:
    with pytest.raises(InputError, match=r"^--nodes: ") as caught:
        expand(text, "--nodes")
    assert word in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_an_empty_set_names_the_option_for_the_nodes_of_a_job() -> None:
    """``--nodes "$SLURM_JOB_NODELIST"`` is empty on a login node."""
    with pytest.raises(InputError, match=r"^--nodes: empty node set; .*: --jobid 4711$"):
        expand("", "--nodes")
    with pytest.raises(InputError, match=r"67\]$"):
        expand("", "hosts, line 3")


@pytest.mark.parametrize("text", ["n[0-999999999]", "n[0-99999]x[0-99999]", "n[1-4097]", "a[1-3000],b[1-3000]"])
def test_huge_sets_are_refused_before_they_are_made(text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=rf"nodes; at most {MAX_NODES}"):
            expand(text, "--nodes")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def test_as_many_nodes_as_allowed_are_made() -> None:
    assert len(expand(f"n[1-{MAX_NODES}]", "--nodes")) == MAX_NODES


def test_a_hostfile_has_comments_blanks_slots_and_sets(tmp_path: Path) -> None:
    path = tmp_path / "hosts"
    path.write_text("# rack 1\n\nn060 slots=8\nn[061-062]  # two of them\nn060 max_slots=8 slots=8\n")
    assert read_hosts(str(path), "--hostfile") == ["n060", "n061", "n062"]
    assert expand(f"^{path},a", "--nodes") == ["n060", "n061", "n062", "a"]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("", "names no node"),
        ("# nothing\n\n", "names no node"),
        ("n1\n-oProxyCommand=touch X\n", "line 2"),
        ("n1\nn2 8\n", "line 2: '8' after the name"),
        ("n[1-\n", "line 1"),
        ("^other\n", "may not name another file"),
        ("\x00\x01\n", "not a host name"),
    ],
)
def test_a_bad_hostfile_is_reported_with_its_line(tmp_path: Path, content: str, word: str) -> None:
    path = tmp_path / "hosts"
    path.write_text(content)
    with pytest.raises(InputError) as caught:
        read_hosts(str(path), "--hostfile")
    assert word in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_folder_and_an_endless_file_are_no_hostfiles(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Is a directory"):
        read_hosts(str(tmp_path), "--hostfile")
    with pytest.raises(InputError, match="larger than"):
        read_hosts("/dev/zero", "--hostfile")


def test_hosts_come_from_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"n1\nn2\n")))
    assert read_hosts("-", "--hostfile") == ["n1", "n2"]


def test_several_options_add_up_and_exclude_takes_away() -> None:
    assert chosen_nodes(["b,a", "c"], [], ["a"]) == ["b", "c"]
    with pytest.raises(InputError, match="leaves no node"):
        chosen_nodes(["a"], [], ["a"])


@pytest.mark.parametrize(
    ("nodes", "exclude", "stands"),
    [("n[060-063]", "n63", "n063"), ("n[60-63]", "n063", "n63"), ("n1.site.org,n2.site.org", "n2", "n2.site.org")],
)
def test_a_node_to_leave_out_in_another_spelling_is_refused(nodes: str, exclude: str, stands: str) -> None:
    with pytest.raises(InputError, match=f"--exclude: {exclude} is not in the node set, but {stands} is"):
        chosen_nodes([nodes], [], [exclude])


def test_what_is_not_among_the_nodes_may_be_left_out() -> None:
    assert chosen_nodes(["n[060-061],n7,10.0.0.1"], [], ["n70,n061,n600,10.0.0.10,10.1.0.1"]) == [
        "n060",
        "n7",
        "10.0.0.1",
    ]


@pytest.fixture
def _groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ClusterShell import NodeSet
    from ClusterShell.NodeUtils import GroupResolverConfig

    config = tmp_path / "groups.conf"
    config.write_text(
        "[Main]\ndefault: here\n[here]\nmap: case $GROUP in rack1) echo 'n[3,1]';; both) echo @rack1,b;; "
        "huge) echo 'n[0-999999999]';; loop) echo @loop;; evil) echo '-oProxyCommand=x';; esac\nall: echo a,b\n"
    )
    resolver = GroupResolverConfig([str(config)])
    monkeypatch.setattr(NodeSet, "std_group_resolver", lambda: resolver)


@pytest.mark.usefixtures("_groups")
def test_groups_come_from_clustershell() -> None:
    assert expand("a,@rack1", "--nodes") == ["a", "n3", "n1"]
    assert expand("@both", "--nodes") == ["n3", "n1", "b"]
    assert expand("@here:rack1", "--nodes") == ["n3", "n1"]
    assert expand("@*", "--nodes") == ["a", "b"]


@pytest.mark.usefixtures("_groups")
@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("@unknown", "unknown or empty"),
        ("@there:rack1", "there"),
        ("@huge", "nodes; at most"),
        ("@loop", "deep"),
        ("@evil", "begins with '-'"),
        ("@", "unknown or empty"),
    ],
)
def test_bad_groups_are_reported(text: str, word: str) -> None:
    with pytest.raises(InputError) as caught:
        expand(text, "--nodes")
    assert word in str(caught.value)


@pytest.mark.usefixtures("_groups")
@pytest.mark.parametrize(
    "around", ["x in x) ;; esac; {}; case $GROUP", "`{}`", "$({})", "x\n{}\n", "here:`{}`", "`{}`:x", "-x"]
)
def test_the_name_of_a_group_is_no_shell_text(around: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a group; expected letters"):
        expand(f"@{around.format(f'touch {tmp_path}/made')}", "--nodes")
    assert not (tmp_path / "made").exists()


def test_a_machine_without_group_sources_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ClusterShell import NodeSet
    from ClusterShell.NodeUtils import GroupResolverConfig

    config = tmp_path / "groups.conf"
    config.write_text("[Main]\n")
    monkeypatch.setattr(NodeSet, "std_group_resolver", lambda: GroupResolverConfig([str(config)]))
    with pytest.raises(InputError, match="the group @rack1: this machine has no group source"):
        expand("@rack1", "--nodes")


def test_a_group_source_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodeset, "GROUP_TIMEOUT", 0.05)
    monkeypatch.setattr(nodeset, "_group_sets", _hanging)
    with pytest.raises(InputError, match="did not answer"):
        expand("@rack1", "--nodes")


def _hanging(name: str) -> list[str]:
    time.sleep(2)
    return [name]


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["n060"], "n060"),
        (["n060", "n061", "n062", "n070"], "n[060-062,070]"),
        (["n8", "n9", "n10"], "n[8-10]"),
        (["n098", "n099", "n100"], "n[098-100]"),
        (["gpu-1.rack", "gpu-2.rack", "login"], "gpu-[1-2].rack,login"),
        (["r1n01", "r1n02", "r2n01"], "r1n[01-02],r2n01"),
        (["n1", "n01"], "n[1,01]"),
        (["a", "a"], "a"),
        (["n", "n6"], "n,n6"),
        ([], ""),
    ],
)
def test_names_are_folded(names: list[str], folded: str) -> None:
    assert fold(names) == folded


@given(st.lists(st.from_regex(r"[a-c]{1,2}[0-9]{0,4}(\.x)?", fullmatch=True), min_size=1, max_size=30, unique=True))
def test_a_folded_set_stands_for_the_same_nodes(names: list[str]) -> None:
    assert sorted(expand(fold(names), "test")) == sorted(names)


def test_counts_have_their_noun() -> None:
    assert (count(1, "node"), count(2, "node"), count(2, "entry", "entries")) == ("1 node", "2 nodes", "2 entries")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("d[001-002],f[004,006]", ["d001", "d002", "f004", "f006"]),
        ("gpu002", ["gpu002"]),
        ("n[0-99999]", None),
        ("^/etc/passwd", None),
        ("@rack1", None),
        ("(Resources)", None),
        ("n[1-", None),
        ("", None),
    ],
)
def test_node_lists_in_imported_files_read_nothing_else(text: str, names: list[str] | None) -> None:
    assert expand_listed(text) == names


def test_names_with_several_numbers_fold_in_linear_time() -> None:
    names = [f"ip-10-0-{number * 7919 % 256}-{number}" for number in range(4096)]
    started = time.process_time()
    assert len(fold(names)) > 4096
    assert time.process_time() - started < 1.0


def test_a_long_set_without_brackets_takes_linear_time() -> None:
    started = time.process_time()
    with pytest.raises(InputError, match="nodes; at most"):
        expand(",".join(f"n{number}" for number in range(100_000)), "--nodes")
    assert time.process_time() - started < 5.0

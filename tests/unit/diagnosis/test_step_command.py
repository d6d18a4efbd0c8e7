"""Next steps as commands: node, words, filters, refusals, and which only read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.knowledge.next_commands import on_node
from fabtui.diagnosis.knowledge.step_command import CannotRunError, LineFilter, is_read_only, step_command
from fabtui.model.session_logs import MOST_COMMANDS
from fabtui.model.session_model import Model
from tests.conftest import ModelMaker
from tests.unit.diagnosis.texts import texts

READ_ONLY = Path(__file__).with_name("commands-that-read.txt").read_text().splitlines()
MAY_CHANGE = Path(__file__).with_name("commands-that-may-change.txt").read_text().splitlines()


@pytest.mark.parametrize("text", READ_ONLY)
def test_commands_that_only_read(text: str) -> None:
    assert is_read_only(text.split())


@pytest.mark.parametrize("text", MAY_CHANGE)
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


@pytest.mark.parametrize(("text", "why"), texts("commands that cannot run"))
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

"""The command line as a process: what it prints where, and what it exits with."""

import asyncio
import gzip
import json
import os
import pwd
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fabtui import exit_status
from fabtui.cli import main as entry
from fabtui.cli.commands import app
from fabtui.cli.parser import COMMANDS, FURTHER, build_parser, help_of
from fabtui.config.options import options_of
from tests.unit.mistakes import mistakes

Maker = Callable[[], Any]
Here = Callable[..., "subprocess.CompletedProcess[str]"]


def fabtui(*argv: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "fabtui", *argv],
        capture_output=True,
        text=True,
        timeout=90,
        stdin=subprocess.DEVNULL,
        **more,
    )


@pytest.fixture
def here(capsys: pytest.CaptureFixture[str]) -> Here:
    """Return a function that runs fabtui in this process, which saves the start of an interpreter."""

    def run(*argv: str) -> subprocess.CompletedProcess[str]:
        try:
            code = entry.main(argv)
        except SystemExit as ended:
            code = int(ended.code or 0)
        return subprocess.CompletedProcess(argv, code, *capsys.readouterr())

    return run


def recording(path: Path, maker: Any, more: str = "") -> Path:
    with gzip.open(path, "wt") as file:
        for event in maker.events:
            file.write(json.dumps(event.to_json()) + "\n")
        file.write(more)
    return path


@pytest.mark.parametrize(("argv", "words"), mistakes("command"))
def test_wrong_input_is_one_line_and_exit_2(argv: str, words: str, here: Here) -> None:
    _is_one_line(here(*shlex.split(argv)), words)


@pytest.mark.slow
def test_wrong_input_ends_the_process_with_exit_2() -> None:
    _is_one_line(fabtui("run", "--nodes", "\x1b[2Ja"), "unbalanced")


def _is_one_line(done: subprocess.CompletedProcess[str], words: str) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("fabtui: error: ")
    assert done.stderr.count("\n") == 1
    assert words in done.stderr
    assert "\x1b" not in done.stderr


#: Command lines as people mistype them.
MISTYPED = Path(__file__).with_name("mistyped.txt").read_text().splitlines()


@pytest.mark.parametrize("line", MISTYPED)
def test_a_mistyped_command_line_has_one_line_that_reports_what_is_wrong(line: str, here: Here) -> None:
    done = here(*shlex.split(line))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("fabtui: error: ")
    assert done.stderr.count("\n") == 1
    assert "argument " not in done.stderr, "the words of argparse"


@pytest.mark.slow
def test_wrong_input_leaves_no_recording(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
    fabtui("run", "--lab", "2x2", "--csv", "/nowhere/x.csv", env=environment)
    assert not list(tmp_path.rglob("*.jsonl.gz"))


@pytest.mark.parametrize("command", ["", *COMMANDS, *FURTHER])
def test_a_help_is_at_most_40_lines_and_help_all_has_every_option(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = [command] if command else []
    helps = []
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit):
            build_parser(words).parse_args([*words, option])
        helps.append(capsys.readouterr().out)
    short, whole = helps
    assert len(short.splitlines()) <= 40
    assert all(spec.flag in whole for spec in options_of(command) if not spec.positional)
    if any(spec.group == "connection" for spec in options_of(command)):
        assert "--help-all" in short
        assert "--host-key-policy" not in short


@pytest.mark.parametrize(
    "command", [[], ["run"], ["replay"], ["read"], ["explain"], ["info"], ["probes"], ["completion"]]
)
def test_every_command_explains_itself(command: list[str], here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    done = here(*command, "--help")
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert lines[0].endswith((".", ":")) or not lines[1].startswith("usage"), "its sentence comes first"
    assert any(line.startswith("usage: fabtui") for line in lines[:5])


def test_the_help_of_a_command_is_that_of_its_module() -> None:
    from importlib import import_module

    from fabtui.cli.parser import COMMANDS, FURTHER, help_of, place_of

    for command in ("", *COMMANDS, *FURTHER):
        name, end = place_of(command)
        text: str = getattr(import_module(f"fabtui.cli.commands.{name}"), f"HELP{end.upper()}")
        description, _, epilog = text.partition("\n\n")
        assert help_of(command) == (description.strip(), epilog)


def test_every_option_has_one_line_of_help() -> None:
    import argparse

    from fabtui.cli.parser import build_parser

    def actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
        found = list(parser._actions)
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for command in action.choices.values():
                    found += actions(command)
        return found

    for action in actions(build_parser()):
        if not isinstance(action, argparse._SubParsersAction):
            assert action.help, action.option_strings
            assert len(action.help.partition(" (default: ")[0]) <= 60, action.help


def test_a_replay_ends_with_one_line_about_the_session(
    tmp_path: Path, make_model: Maker, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = make_model().start(["n0", "n1"]).endpoints({"n0": 1, "n1": 1})
    maker.measured("p2p", "n0:0", "n1:0", "failed", error="connect: refused", unit="GB/s")

    def played(make_feed: Callable[[], Any], *_: object) -> int:
        asyncio.run(make_feed().run())
        return 1

    monkeypatch.setattr(app, "run_app", played)
    done = here("replay", str(recording(tmp_path / "a.jsonl.gz", maker)), "--speed", "max")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "The only tested pair is bad: n0:0 > n1:0 failed\n"


def test_the_app_ends_with_one_line_about_the_session(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    def left_at_once(make_feed: Callable[[], Any], *_: object) -> int:
        feed = make_feed()
        asyncio.run(feed.close())
        return 130

    monkeypatch.setattr(app, "run_app", left_at_once)
    done = here("--lab", "2x1", "--record", str(tmp_path / "a.jsonl.gz"))
    assert (done.returncode, done.stdout) == (130, "")
    *_, sentence, interrupted, recorded, report = done.stderr.splitlines()
    assert sentence.startswith("No pair was tested: ")
    assert (interrupted, recorded) == ("interrupted", f"recorded in {tmp_path / 'a.jsonl.gz'}")
    assert report == f"a page about it: fabtui report {shlex.quote(str(tmp_path / 'a.jsonl.gz'))}"


def test_the_probes_are_listed(here: Here) -> None:
    from fabtui_node.registry import DEFAULT

    text = here("probes").stdout
    for name in DEFAULT:
        assert f"\n  {name} " in text


def test_info_reports_where_things_are(tmp_path: Path) -> None:
    done = fabtui(
        "info", env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm-256color", "COLORTERM": ""}
    )
    assert done.returncode == 0
    assert f"{tmp_path}/fabtui (missing)" in done.stdout
    assert "textual        " in done.stdout
    assert "256 (TERM)" in done.stdout


def test_a_recording_is_reported_as_text(make_model: Maker, tmp_path: Path, here: Here) -> None:
    names = ["n0:0", "n0:1"]
    maker = make_model().start(["n0"]).endpoints({"n0": 2}).pairs(names).add("phase", name="done")
    csv = tmp_path / "s.csv"
    done = here("replay", "--text", "--csv", str(csv), str(recording(tmp_path / "good.gz", maker)))
    assert (done.returncode, done.stderr) == (0, "")
    assert "1 node, 2 x CPU rank" in done.stdout
    assert f"wrote {csv} (2 rows)" in done.stdout
    assert len(csv.read_text().splitlines()) == 3
    done = here("replay", "--text", "--baseline", "x", str(tmp_path / "good.gz"))
    assert done.returncode == 2
    assert "as text: fabtui diff EARLIER LATER" in done.stderr
    maker.measured("p2p", *names, "failed", error="x")
    assert here("replay", "--text", str(recording(tmp_path / "bad.gz", maker))).returncode == 1
    event = '{"kind": "measured", "measurements": [{"layer": "nonsense"}], "seq": 7, "time": 1700000003.5}\n'
    done = here("replay", "--text", str(recording(tmp_path / "broken.gz", maker, event)))
    assert done.returncode == 2
    assert "broken.gz" in done.stderr
    assert "unknown layer 'nonsense'" in done.stderr
    assert done.stderr.count("\n") == 1


def test_an_unexpected_error_leaves_one_line_and_a_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def broken(argv: object) -> int:
        raise RuntimeError("surprise\x1b[2J\nsecond line")

    monkeypatch.setattr(entry, "_dispatch", broken)
    assert entry.main(["run", "--env", "TOKEN=secret"]) == 70
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert "RuntimeError: surprise" in err
    log = tmp_path / "fabtui" / "crash.log"
    assert str(log) in err
    assert "Traceback" in log.read_text()
    assert "secret" not in log.read_text()
    assert log.stat().st_mode & 0o777 == 0o600


def test_a_crash_without_a_place_for_the_log_is_still_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(entry, "_dispatch", lambda argv: 1 // 0)
    assert entry.main([]) == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_a_user_without_a_home_folder_is_one_clear_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A container with a user id of its own."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert entry.main(["info"]) == 2
    words = "has no home folder: set HOME, or XDG_CONFIG_HOME and XDG_STATE_HOME\n"
    assert capsys.readouterr().err == f"fabtui: error: user {os.getuid()} {words}"
    monkeypatch.setattr(entry, "_dispatch", lambda argv: 1 // 0)
    assert entry.main([]) == 70
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_ctrl_c_anywhere_is_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(argv: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(entry, "_dispatch", interrupted)
    assert entry.main([]) == 130


def test_a_reader_that_goes_away_is_no_crash() -> None:
    command = f"{sys.executable} -m fabtui --help | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=20)
    assert "Traceback" not in done.stderr


def test_a_full_disk_behind_standard_output_is_no_crash() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "fabtui", "info"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60
        )
    assert done.returncode == 2
    assert done.stderr.startswith("fabtui: error: ")
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_standard_files_may_be_closed(closed: str) -> None:
    command = f"{sys.executable} -m fabtui probes {closed}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("all_reduce" in done.stdout) is (">&-" not in closed.replace("2>&-", ""))


@pytest.mark.parametrize(
    ("argv", "reported"),
    [
        (
            ["run", "n060", "n061"],
            "unrecognized arguments: n060 n061; did you mean fabtui run --nodes n060,n061? See fabtui run",
        ),
        (["run", "--baseline", "x"], "fabtui run has no option --baseline; see fabtui run --help"),
        (["n060.invalid,n061.invalid"], "no host n060.invalid is known here; see fabtui --help"),
        (["info", "x"], "unrecognized arguments: x; see fabtui info --help"),
        (["run", "--nodes", "a", "--watch", "-3"], "is not a time from 1 to 2592000 seconds"),
    ],
)
def test_what_is_left_over_is_reported_with_its_command(argv: list[str], reported: str, here: Here) -> None:
    done = here(*argv)
    assert done.returncode == 2
    assert reported in done.stderr


@pytest.mark.slow
def test_files_are_written_though_nobody_reads_what_is_reported(make_model: Maker, tmp_path: Path) -> None:
    names = [f"n{node}:{index}" for node in range(4) for index in range(4)]
    maker = make_model().start([f"n{node}" for node in range(4)]).endpoints({f"n{node}": 4 for node in range(4)})
    path, csv = recording(tmp_path / "r.gz", maker.pairs(names)), tmp_path / "pairs.csv"
    words = [sys.executable, "-m", "fabtui", "replay", "--text", str(path), "--csv", str(csv), "--grids", "all"]
    command = f"{shlex.join(words)} | true"
    subprocess.run(["bash", "-c", command], capture_output=True, timeout=60, check=False)
    assert len(csv.read_text().splitlines()) == 1 + 16 * 15


@pytest.mark.parametrize("argv", [["--lab", "1x2"], ["--nodes", "a"]])
def test_without_a_terminal_the_app_points_to_run(argv: list[str]) -> None:
    done = fabtui(*argv, "--no-record", env={**os.environ, "TERM": "xterm"})
    assert done.returncode == 2
    assert done.stderr.startswith("fabtui: error: standard input is not a terminal")
    assert "fabtui run" in done.stderr
    assert done.stderr.count("\n") == 1


def test_numpy_starts_no_thread_for_each_core() -> None:
    """A login node may have hundreds of cores, and other users."""
    count = (
        "from fabtui.cli.main import main; main(['info']); import os, numpy; print(len(os.listdir('/proc/self/task')))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", count], capture_output=True, text=True, timeout=90, env=environment)
    assert done.stdout.splitlines()[-1] == "1", done.stderr


@pytest.mark.parametrize(
    ("words", "same"),
    [
        (["--theme", "dark", "replay", "x"], ["replay", "--theme", "dark", "x"]),
        (["--nodes", "run", "run"], ["run", "--nodes", "run"]),
        (["--force", "run"], ["run", "--force"]),
        (["--speed", "max", "replay", "x"], ["replay", "--speed", "max", "x"]),
        (["--nodes", "run"], ["--nodes", "run"]),
        (["--", "run"], ["--", "run"]),
        ([], []),
    ],
)
def test_options_before_the_command_belong_to_it(words: list[str], same: list[str]) -> None:
    from fabtui.cli.parser import expanded

    assert expanded(words) == same


@pytest.mark.parametrize(
    ("name", "now"),
    [
        *(("ras", "hang --source ras"), ("flight", "hang --source flight"), ("stacks", "hang --source stacks")),
        *(("watchdog", "hang --wait"), ("healthy", "nodes"), ("order", "nodes --order"), ("schema", "help --schema")),
    ],
)
def test_an_earlier_name_is_answered_with_the_new_form(name: str, now: str, capsys: pytest.CaptureFixture[str]) -> None:
    from fabtui.cli.main import main

    for words in ([name], ["--nodes", "n060", name, "x"], ["help", name]):
        assert main(words) == 2
        assert capsys.readouterr().err == f"fabtui: error: '{name}' is 'fabtui {now}' now\n"


def test_the_help_has_the_commands_and_options_that_people_use(here: Here, monkeypatch: pytest.MonkeyPatch) -> None:
    from fabtui.cli.parser import COMMANDS, FURTHER

    monkeypatch.setenv("COLUMNS", "80")
    short, whole = here("--help").stdout, here("--help-all").stdout
    assert len(COMMANDS) == 12, "and the app itself"
    assert max(map(len, short.splitlines())) <= 80
    assert len(re.findall(r"(?m)^  --", short)) == 10
    assert "--host-key-policy" in whole
    assert "--host-key-policy" not in short
    assert here("help").stdout == short
    assert here("help", "nodes").stdout == here("nodes", "--help").stdout
    listed = here("help", "--all").stdout
    assert all(f"\n  {name} " in listed for name in (*COMMANDS, *FURTHER))
    wrong = here("help", "nodse")
    assert (wrong.returncode, wrong.stderr.startswith("fabtui: error: unknown command 'nodse'")) == (2, True)


LISTED = "exit codes:"
LISTING = [command for command in ("", *COMMANDS, *FURTHER) if LISTED in help_of(command)[1]]
CODES = {value for name, value in vars(exit_status).items() if name.isupper()}


@pytest.mark.parametrize("command", LISTING)
def test_the_help_of_a_command_names_codes_of_the_table(command: str) -> None:
    listed = " ".join(help_of(command)[1].partition(LISTED)[2].split())
    codes = {int(number) for number in re.findall(r"(?:^|; |, )(\d{1,3}) ", f"{listed} ")}
    assert codes
    assert codes <= CODES

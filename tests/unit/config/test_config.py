"""The settings file: what holds, what is wrong in it and where, and what beats what."""

import os
import tomllib
from pathlib import Path
from shlex import quote

import pytest

from fabtui.cli.main import main
from fabtui.cli.options_from_args import print_problems, request_from
from fabtui.cli.parser import build_parser
from fabtui.config.file import ConfigFile, merged, read_config
from fabtui.config.options import settings
from fabtui.errors import InputError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "fabtui").mkdir()
    return tmp_path / "fabtui"


def written(home: Path, text: str) -> ConfigFile:
    (home / "config.toml").write_text(text)
    return read_config()


def reported(home: Path, text: str) -> list[str]:
    config = written(home, text)
    return [config.describe(problem).removeprefix(f"{home}/") for problem in config.problems]


def test_without_a_file_the_defaults_hold(home: Path) -> None:
    config = read_config()
    assert (config.present, config.values, config.problems) == (False, {}, [])


def test_the_command_line_beats_the_file_and_the_file_beats_the_defaults(home: Path) -> None:
    config = written(home, '[session]\ntimeout = 20\nmode = "quick"\nprobes = ["p2p", "ping"]\nkeep-warm = true\n')
    args = build_parser(["run"]).parse_args(["run", "--nodes", "a", "--no-record", "--mode", "full"])
    options = request_from(args, config).options
    assert (options.timeout, options.mode, options.probes) == (20.0, "full", ("ping", "p2p"))
    assert options.keep_warm
    assert options.iters == 20
    assert request_from(args).options.timeout == 10.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[session]\n\ntimout = 3\n", "config.toml:3: unknown setting session.timout; did you mean timeout?"),
        ("[sesion]\ntimeout = 3\n", "config.toml:1: unknown table [sesion]"),
        ("[sesion]\ntimeout = 3\n", "did you mean session?"),
        ("[screen]\ntimeout = 3\n", "config.toml:2: unknown setting screen.timeout; it belongs to [session]"),
        ('[session]\n# one\ntimeout = "soon"\n', "config.toml:3: session.timeout: the value is not a time from 0.5 to"),
        (
            '[session]\nmode = "quik"\n',
            "session.mode: there is no such value; one of auto, quick, adaptive, sampled, full; did you mean",
        ),
        ('[session]\ntransport = "local"\n', "session.transport: there is no such value; one of ssh, openssh"),
        (
            '[session]\nprobes = ["pong"]\n',
            "session.probes: unknown probe; did you mean ping?; or all (see fabtui probes)",
        ),
        ('[session]\nprobes = ["everything"]\n', "session.probes: unknown probe; there are "),
        (
            'theme = "dark"\n[session]\ntimeout = 3\n',
            "config.toml:1: theme is outside of its table; write [screen] on the line above it",
        ),
        ('[session]\nbytes = "3x"\n', "session.bytes: the value is not a size"),
        ('[screen]\nascii = "yes"\n', "screen.ascii: a string is neither true nor false"),
        ("[screen]\ncolors = 7\n", "screen.colors: there is no such value; one of auto, 24, 256, 16, none"),
        ('[session]\nssh-config = "/nowhere/at/all"\n', "session.ssh-config: cannot read the file: No such file"),
        ("[session]\nenv = 3\n", "session.env: a number is not a table"),
        ('[session.env]\n"A B" = "x"\n', "session.env: 'A B' is not a variable"),
        ("[keys]\n'main.sweep' = 5\n", 'config.toml:2: keys.main.sweep: not a string; expected "main.sweep" ='),
        ("screen = 3\n", "config.toml:1: screen is a table"),
        ("[screen]\ntheme = dark\n", "config.toml:2: is not TOML"),
        ("[screen\n", "config.toml:1: is not TOML"),
        ("x = [\n\n", "is not TOML"),
        *(
            (f"[session]\niters = {many}\n", "is not TOML: Exceeds the limit")
            for many in ("9" * 5000, "0x" + "f" * 5000)
        ),
    ],
)
def test_what_is_wrong_is_reported_with_its_line_and_the_right_name(home: Path, text: str, words: str) -> None:
    assert words in "\n".join(reported(home, text))


@pytest.mark.parametrize(
    "text",
    [
        *('env = ["N=canary"]', 'env = "N=canary"', 'env = { N = ["canary"] }', 'timeout = "canary"'),
        *('mode = "canary"', "mode = canary", 'probes = ["p2p", "canary"]', 'keep-warm = "canary"'),
        *('ssh-config = "/x/canary: a\'b"', 'iters = "ca\'nary"', 'bytes = "canary\\\\"'),
        *('remote-python = "-canary"', 'transport = "canary\\u001b"'),
    ],
)
def test_what_is_wrong_is_reported_without_its_value(home: Path, text: str) -> None:
    """It may be a secret in the wrong place, and the output ends up in bug reports."""
    (line,) = reported(home, f"[session]\n{text}\n")
    assert line.startswith("config.toml:2: ")
    assert "nary" not in line


@pytest.mark.parametrize("name", ["fabtui/config.toml", "fabtui", "."])
def test_a_file_that_others_can_change_is_ignored(home: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It can name programs that run on all nodes; one that the user names is not checked, as with ``ssh -F``."""
    assert written(home, "[session]\niters = 3\n").values
    path = home.parent / name
    path.chmod(path.stat().st_mode | 0o002)
    config = read_config()
    assert (config.present, config.values) == (True, {})
    print_problems(config)
    mend = f"others may write to {path}; chmod go-w {quote(str(path))}; the file is ignored"
    assert capsys.readouterr().err == f"fabtui: {home / 'config.toml'}: {mend}\n"
    named = build_parser(["run"]).parse_args(["run", "--config", f"{home}/../fabtui/config.toml"])
    assert read_config(named).values["session.iters"].value == "3"
    path.chmod(path.stat().st_mode & ~0o022)
    assert read_config().values


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_ignored(home: Path) -> None:
    assert written(home, "[session]\niters = 3\n").values
    os.chown(home / "config.toml", 65534, -1)
    config = read_config()
    assert config.values == {}
    assert "belongs to another user (uid 65534); chown 0 " in config.problems[0].text


def test_what_is_wrong_leaves_the_rest_in_force(home: Path) -> None:
    config = written(home, '[session]\ntimout = 3\niters = 7\nmode = "x"\n[keys]\n"main.sweep" = "f5"\n')
    assert {name: found.value for name, found in config.values.items()} == {"session.iters": "7"}
    assert config.keys["main.sweep"].value == "f5"
    assert len(config.problems) == 2


def test_bytes_that_are_no_text_and_files_that_are_too_large(home: Path) -> None:
    (home / "config.toml").write_bytes(b"[screen]\ntheme = '\xff'\n")
    assert read_config().problems[0][:2] == (2, "is not UTF-8")
    (home / "config.toml").write_bytes(b"#" * (2 << 20))
    assert "larger than 1 MiB" in read_config().problems[0].text


def test_control_characters_of_the_file_do_not_reach_the_terminal(home: Path) -> None:
    assert "\x1b" not in "".join(reported(home, '[screen]\ncolors = "\\u001b[2J"\n"\\u001b]0;x" = 1\n'))


def test_a_file_that_was_named_has_to_be_there(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    args = build_parser(["run"]).parse_args(["run", "--config", str(tmp_path / "none.toml")])
    with pytest.raises(InputError, match=r"none\.toml: there is no such settings file"):
        read_config(args)
    (tmp_path / "own.toml").write_text("[session]\niters = 3\n")
    monkeypatch.setenv("FABTUI_CONFIG", str(tmp_path / "own.toml"))
    assert read_config().values["session.iters"].value == "3"


def test_a_lab_makes_its_own_way_to_its_nodes(home: Path) -> None:
    config = written(home, '[session]\ntransport = "openssh"\nhost-key-policy = "strict"\n')
    args = build_parser(["run"]).parse_args(["run", "--lab", "2x2", "--no-record"])
    assert request_from(args, config).options.transport == "ssh"


@pytest.mark.parametrize(
    ("own", "argv"),
    [
        ('mode = "quick"\nlayers = ["p2p"]', ["--probes", "ping"]),
        ('probes = ["ping"]', ["--mode", "full"]),
        ('probes = ["ping"]', ["--isolated"]),
        ('probes = ["p2p"]', ["--sizes", "1M"]),
        ('layers = ["world"]', ["--isolated"]),
        ('env = { A = "1" }', ["--env", "A=2"]),
        ('env = { A = "1" }', ["--ab", "A=2,3"]),
        ('probes = ["ping"]\nmode = "quick"', []),
    ],
)
def test_settings_make_no_error_of_arguments_that_are_right(home: Path, own: str, argv: list[str]) -> None:
    config = written(home, f"[session]\n{own}\n")
    assert config.problems == []
    request_from(build_parser(["run"]).parse_args(["run", "--nodes", "a", "--no-record", *argv]), config)


def test_variables_of_the_file_and_of_the_command_line_are_one_set(home: Path) -> None:
    config = written(home, '[session]\nenv = { NCCL_SOCKET_IFNAME = "bond0", NCCL_DEBUG = "WARN", N = 3 }\n')
    found = merged({"env": ["NCCL_DEBUG=INFO"]}, config)["env"]
    assert sorted(found) == ["N=3", "NCCL_DEBUG=INFO", "NCCL_SOCKET_IFNAME=bond0"]


def test_no_recording_and_recordings_elsewhere(home: Path, tmp_path: Path) -> None:
    args = build_parser(["run"]).parse_args(["run", "--nodes", "a"])
    assert request_from(args, written(home, "[recording]\nkeep = false\n")).options.record is None
    mine = tmp_path / "mine"
    mine.mkdir(mode=0o750)
    record = request_from(args, written(home, f'[recording]\nfolder = "{mine}"\n')).options.record
    assert record is not None
    assert record.parent == mine
    assert mine.stat().st_mode & 0o777 == 0o750


def test_init_writes_a_commented_file_and_never_over_another(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "init"]) == 0
    path = home / "config.toml"
    assert path.stat().st_mode & 0o777 == 0o600
    text = path.read_text()
    assert all(not table for table in tomllib.loads(text).values())
    for setting in settings().values():
        assert f"#{setting.name} = " in text
    path.write_text("# mine\n")
    assert main(["config", "init"]) == 2
    assert path.read_text() == "# mine\n"
    assert "already exists and is not overwritten" in capsys.readouterr().err


def test_every_line_of_the_commented_file_is_right_when_it_is_taken_up(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from fabtui.config.file import template
    from fabtui.screen.app import FabricApp
    from fabtui.screen.keymap import key_rows

    (tmp_path / "cluster").touch()
    keys = [(row.id, row.keys, row.description) for row in key_rows(FabricApp)]
    text = template(keys).replace('"~/.ssh/cluster"', f'"{tmp_path / "cluster"}"')
    lines = [line[1:] if line.startswith("#") and not line.startswith("# ") else line for line in text.splitlines()]
    (home / "config.toml").write_text("\n".join(lines))
    code = main(["config", "validate"])
    assert (code, capsys.readouterr().err) == (0, "")


def test_validate_ends_with_2_and_a_line_for_each_problem(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text(
        '[screen]\ntheme = "drak"\n[session]\ntimout = 3\n[keys]\n"main.swep" = "f5"\n"main.pair" = "f55"\n'
        '"main.retest" = "f7"\n"main.sweep" = "f7"\n'
    )
    assert main(["config", "validate"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 5
    for line, words in zip(
        lines,
        (
            ":2: screen.theme: there is no theme 'drak'",
            ":4: unknown setting session.timout; did you mean timeout?",
            ':6: keys."main.swep": there is no such binding; did you mean main.sweep?',
            ":7: keys.\"main.pair\": there is no key 'f55'; did you mean f5?",
            'keys."main.',
        ),
        strict=True,
    ):
        assert words in line
    assert "f7 is also the key of main." in lines[-1]


def test_show_reports_where_each_value_comes_from(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / "config.toml").write_text(
        '[screen]\ntheme = "light"\n[session]\ntimeout = 20\nenv = { TOKEN = "s3cret" }\n'
    )
    assert main(["config", "show", "--timeout", "30"]) == 0
    shown = capsys.readouterr().out
    rows = {line.split()[0]: line.split(None, 1)[1].rsplit("  ", 1) for line in shown.splitlines()[1:]}
    assert rows["screen.theme"][1].strip() == "config.toml:2"
    assert rows["session.timeout"] == ["30" + rows["session.timeout"][0][2:], "command line"]
    assert rows["session.mode"][1].strip() == "default"
    assert "s3cret" not in shown
    assert "TOKEN=..." in shown
    assert main(["config", "show", "--env", "B=2"]) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "session.env" in line)
    assert line.split() == ["session.env", "B=...,TOKEN=...", "command", "line", "and", "config.toml:5"]


def test_path(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["config", "path"]) == 0
    assert capsys.readouterr().out == f"{home / 'config.toml'}\n"
    assert os.listdir(home) == []

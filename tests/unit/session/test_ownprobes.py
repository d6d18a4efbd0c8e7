"""Probes of the user's own: found and never run here, shipped, run on the nodes, and skipped when broken."""

import ast
import asyncio
import grp
import json
import os
import pwd
import re
import shlex
import subprocess
import sys
import textwrap
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fabtui import paths
from fabtui.cli.main import main
from fabtui.diagnosis.preflight.checks import preflight
from fabtui.model.session_model import Model
from fabtui.session import user_probes
from fabtui.session.feeds.live import LiveFeed
from fabtui.session.options import SessionOptions
from fabtui.transport import payload
from fabtui.transport.payload import Cargo
from fabtui_node import protocol
from fabtui_node.probes import user_probe
from fabtui_node.registry import PREFLIGHT
from fabtui_node.runtime import bootloader

ROOT = Path(__file__).resolve().parents[3]
GOOD = "def run(args, emit, deadline):\n    return {'a': 1}\n"


def blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


def folder(tmp_path: Path, **files: str) -> Path:
    here = tmp_path / "probes"
    here.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (here / f"{name}.py").write_text(textwrap.dedent(text))
    return here


# -- finding them -----------------------------------------------------------------------------------------------------


def test_without_a_folder_there_are_none(tmp_path: Path) -> None:
    assert user_probes.find(None) == user_probes.OwnProbes()
    assert user_probes.find(tmp_path / "not-there").problems == []


def test_they_are_found_and_not_run(tmp_path: Path) -> None:
    here = folder(
        tmp_path, one=f"NAME = 'uno'\nTITLE = 'first'\nraise SystemExit('run')\n{GOOD}", two=GOOD, _not="x = ("
    )
    (here / "notes.txt").write_text("no probe")
    found = user_probes.find(here)
    assert found.problems == []
    assert {name: probe.title for name, probe in found.probes.items()} == {"uno": "first", "two": ""}
    assert dict(found.modules())["fabtui_own.two"] == GOOD


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("def run(:\n", "line 1: invalid syntax"),
        ("x = 1\n", "has no function run(args, emit, deadline)"),
        ("NAME = 'ping'\n" + GOOD, "a probe of fabtui is called ping already"),
        ("NAME = 'all_reduce'\n" + GOOD, "a probe of fabtui is called all_reduce already"),
        ("NAME = '../x'\n" + GOOD, "is not of small letters, digits and '_'"),
        ("x = '\0'\n" + GOOD, "null bytes"),
        ("# " + "x" * 300_000, "is larger than 256 KiB"),
        ("(" * 5000, "line 1: too many nested parentheses"),
    ],
)
def test_a_broken_one_is_one_line_and_the_others_stay(tmp_path: Path, text: str, problem: str) -> None:
    found = user_probes.find(folder(tmp_path, broken=text, good=GOOD))
    assert list(found.probes) == ["good"]
    (reported,) = found.problems
    assert problem in reported
    assert "broken.py is left out: " in reported
    assert "\n" not in reported


@pytest.mark.parametrize("name", ["probes", "probes/a.py", "other", "other/real.py"])
@pytest.mark.parametrize("mode", [0o20, 0o02])
def test_what_others_may_write_to_is_not_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, mode: int
) -> None:
    """Neither the file, nor its folder, nor the folder and file that a link leads to."""
    monkeypatch.setattr(paths, "_is_group_of_one", lambda number: False)
    here = folder(tmp_path, a=GOOD)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "real.py").write_text(GOOD)
    (here / "b.py").symlink_to(tmp_path / "other" / "real.py")
    assert list(user_probes.find(here).probes) == ["a", "b"]
    changed = tmp_path / name
    changed.chmod(changed.stat().st_mode | mode)
    found = user_probes.find(here)
    assert list(found.probes) == {"probes": [], "probes/a.py": ["b"]}.get(name, ["a"])
    assert f"others may write to {changed}; chmod go-w {shlex.quote(str(changed))}" in found.problems[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("name", ["probes", "probes/a.py"])
def test_files_of_other_users_are_not_shipped(tmp_path: Path, name: str) -> None:
    here = folder(tmp_path, a=GOOD)
    os.chown(tmp_path / name, 65534, -1)
    found = user_probes.find(here)
    assert found.probes == {}
    assert "belongs to another user (uid 65534)" in found.problems[0]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_links_of_other_users_are_not_followed(tmp_path: Path) -> None:
    here = folder(tmp_path, a=GOOD)
    (tmp_path / "link").symlink_to(here)
    assert list(user_probes.find(tmp_path / "link").probes) == ["a"]
    os.chown(tmp_path / "link", 65534, -1, follow_symlinks=False)
    found = user_probes.find(tmp_path / "link")
    assert found.probes == {}
    assert f"link belongs to another user (uid 65534); rm {shlex.quote(str(tmp_path / 'link'))}" in found.problems[0]


@pytest.mark.parametrize(
    ("name", "number", "members", "safe"),
    [
        ("me", 1000, [], True),
        ("me", 1000, ["me"], True),
        ("me", 1000, ["me", "you"], False),
        ("users", 1000, [], False),
        ("me", 1001, [], False),
        ("me", 0, [], False),
    ],
)
def test_a_group_of_the_user_alone_may_write(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, members: list[str], safe: bool
) -> None:
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_name="me", pw_gid=number % 1001))
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=name, gr_mem=members))
    assert paths._is_group_of_one(number) is safe


def test_a_fifo_or_a_device_is_not_waited_for(tmp_path: Path) -> None:
    here = folder(tmp_path)
    os.mkfifo(here / "a.py")
    (here / "b.py").symlink_to("/dev/zero")
    assert [line.partition(": ")[2] for line in user_probes.find(here).problems] == ["is not a regular file"] * 2


def test_what_is_no_utf8_or_open_to_anybody_is_left_out(tmp_path: Path) -> None:
    here = folder(tmp_path, a=GOOD, b=GOOD, c="NAME = 'd'\n" + GOOD, e="NAME = 'd'\n" + GOOD)
    (here / "a.py").write_bytes(b"\xff\xfe" + GOOD.encode())
    (here / "b.py").chmod(0o666)
    found = user_probes.find(here)
    assert list(found.probes) == ["d"]
    assert "a.py" in found.problems[0]
    assert "others may write" in found.problems[1]
    assert "is called d already" in found.problems[2]


@pytest.mark.parametrize("reported", ["oursite-1.dist-info", "oursite.egg-info"])
def test_installed_packages_bring_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reported: str) -> None:
    package = tmp_path / "site" / "oursite"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "scratch.py").write_text(GOOD)
    info = tmp_path / "site" / reported
    info.mkdir()
    (info / ("METADATA" if reported.endswith("dist-info") else "PKG-INFO")).write_text("Name: oursite\nVersion: 1\n")
    points = f"[{user_probes.GROUP}]\nscratch = oursite.scratch\ngone = oursite.gone\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = user_probes.find(tmp_path / "not-there")
    assert list(found.probes) == ["scratch"]
    assert "entry point gone: there is no such module" in found.problems[0]
    assert "oursite" not in sys.modules


def test_an_archive_on_the_path_is_asked_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "site.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("oursite-1.dist-info/METADATA", "Name: oursite\nVersion: 1\n")
        made.writestr("oursite-1.dist-info/entry_points.txt", f"[{user_probes.GROUP}]\ngone = oursite.gone\n")
    monkeypatch.syspath_prepend(str(archive))
    found = user_probes.find(tmp_path / "not-there")
    assert "entry point gone: there is no such module" in found.problems[0]


# -- running them -----------------------------------------------------------------------------------------------------


@pytest.fixture
def ship() -> Iterator[Any]:
    """Serve modules from memory, as on a node."""
    made: list[str] = []

    def shipped(name: str, text: str) -> dict[str, Any]:
        sources = {f"{user_probe.PACKAGE}.{name}": textwrap.dedent(text)}
        importer = bootloader.MemoryImporter(sources)
        sys.meta_path.insert(0, importer)
        made.append(name)
        try:
            return user_probe.run({"name": name}, None, 5.0)
        finally:
            sys.meta_path.remove(importer)

    yield shipped
    for name in [user_probe.PACKAGE, *(f"{user_probe.PACKAGE}.{name}" for name in made)]:
        sys.modules.pop(name, None)


def test_what_it_gives_comes_with_units_and_judgements(ship: Any) -> None:
    found = ship(
        "good",
        """
        UNITS = {"used": "%", 3: 4}
        COMPARE = {"used": "near"}
        def run(args, emit, deadline):
            emit({"x": 1})
            return "93"
        def parse(text):
            return {"used": int(text)}
        def judge(value):
            return [{"subject": "disk", "verdict": "warn", "text": "%d %% full" % value["used"], "more": 1}]
        """,
    )
    assert found == {
        "own": True,
        "value": {"used": 93},
        "units": {"used": "%", "3": "4"},
        "compare": {"used": "near"},
        "judged": [{"subject": "disk", "verdict": "warn", "text": "93 % full"}],
        "problem": None,
    }


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("return None", "run gives a NoneType"),
        ("return 'text'", "has no attribute 'parse'"),
        ("return {'a': {1, 2}}", "a set, which is not a value"),
        ("return {'a': b'x'}", "a bytes, which is not a value"),
        ("return {'a': float('nan')}", "nan, which is not a number"),
        ("return {'a': 1 << 200}", "a number of more than 63 bits"),
        ("return {3: 1}", "a int as a name"),
        ("return {'a': 'x' * 10_000_000}", "more than 200000 characters"),
        ("return {'a': list(range(200_000))}", "more than 200000 characters"),
        ("a = []; a.append(a); return {'a': a}", "more than 12 deep"),
        ("return undefined", "NameError"),
    ],
)
def test_one_that_fails_reports_why(ship: Any, body: str, problem: str) -> None:
    found = ship("bad", f"def run(args, emit, deadline):\n    {body}\n")
    assert problem in found["problem"]
    assert found["value"] == {}


@pytest.mark.parametrize("judge", ["return 3", "return [3]", "raise KeyError('x')"])
def test_a_judge_that_does_not_work_leaves_the_values(ship: Any, judge: str) -> None:
    found = ship("judged", GOOD + f"def judge(value):\n    {judge}\n")
    assert found["value"] == {"a": 1}
    assert found["problem"]


# -- in a session -----------------------------------------------------------------------------------------------------


async def session(here: Path, probes: tuple[str, ...] = ("host",)) -> Model:
    """Look at this host, without SSH."""
    options = SessionOptions(hosts=("here",), transport="local", probes=probes, preflight_only=True, probe_folder=here)
    feed = LiveFeed(options)
    try:
        await feed.run()
    finally:
        await feed.close()
    return feed.model


async def test_the_probe_of_the_docs_and_one_with_names_from_before_the_move_work(tmp_path: Path) -> None:
    (example,) = blocks(ROOT / "docs/user-probes.md")
    assert len(example.splitlines()) <= 32
    old = "fabtui" + "_probes"
    source = f"from {old} import commands\nimport {old}.sysfs\n\ndef run(a, e, d):\n"
    source += "    return {'out': commands.run(['echo', 'yes'], d).stdout}\n"
    model = await session(folder(tmp_path, scratch=example, older=source))
    look = model.nodes["here"].probe_results["older"]
    assert (look["problem"], look["value"]) == (None, {"out": "yes\n"})
    look = model.nodes["here"].probe_results["scratch"]
    assert (look["problem"], look["title"]) == (None, "the scratch file system")
    assert look["value"].keys() == {"type", "size", "used"}
    found = preflight(model)
    titles = {fact.title: found.table.values[fact.name]["here"] for fact in found.table.facts}
    assert titles["scratch: size"] == look["value"]["size"] > 0
    assert [fact.unit for fact in found.table.facts if fact.name == "scratch.size"] == ["B"]


@pytest.mark.slow
async def test_the_template_of_a_probe_runs_and_passes_its_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert main(["probes", "new", "mine"]) == 0
    here = tmp_path / "fabtui" / "probes"
    command = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("test it:"))
    argv = shlex.split(command)[2:]
    done = await asyncio.to_thread(subprocess.run, argv, capture_output=True, text=True, timeout=60)
    assert (done.returncode, "Ran 3 tests" in done.stderr) == (0, True), done.stderr
    ast.parse((here / "mine.py").read_text(), feature_version=(3, 8))
    model = await session(here)
    look = model.nodes["here"].probe_results["mine"]
    assert look["problem"] is None
    assert look["value"]["processors"] == os.cpu_count()
    assert [line.text for line in model.log if line.level == "warning" and "probe" in line.text] == []


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["new"], "fabtui probes new NAME"),
        (["old", "mine"], "fabtui probes new NAME"),
        (["new", "ping"], "a probe of fabtui is called ping already"),
        (["new", "../x"], "is not of small letters, digits and '_'"),
        (["new", "there"], "there.py is called there already"),
        (["new", "other"], "test_other.py exists"),
    ],
)
def test_a_template_is_refused_in_one_line(
    words: list[str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    here = folder(tmp_path / "fabtui", there=GOOD)
    (here / "tests").mkdir()
    (here / "tests" / "test_other.py").touch()
    assert main(["probes", *words]) == 2
    assert problem in capsys.readouterr().err
    assert sorted(path.name for path in here.iterdir()) == ["tests", "there.py"]


@pytest.mark.slow
async def test_broken_ones_are_reported_and_others_run(tmp_path: Path) -> None:
    here = folder(
        tmp_path,
        syntax="def run(:",
        dies="import os\ndef run(a, e, d):\n    os._exit(7)\n",
        raises="def run(a, e, d):\n    raise ValueError('no \\x1b[31m way')\n",
        good=GOOD,
    )
    model = await session(here, PREFLIGHT)
    results = model.nodes["here"].probe_results
    assert results["good"]["value"] == {"a": 1}
    assert results["dies"]["problem"] == "it ended its own process, with status 7"
    assert results["raises"]["problem"].startswith("ValueError: no")
    assert results["host"]["limits"]
    reported = [line.text for line in model.log if line.level == "warning" and "probe" in line.text]
    assert len(reported) == 3
    assert all("\x1b" not in line and "\n" not in line for line in reported)
    found = preflight(model)
    assert found.missing == []
    assert {one.topic: one.severity for one in found.findings if one.topic in ("dies", "raises", "good")} == {
        "dies": "note",
        "raises": "note",
    }


@pytest.mark.slow
async def test_one_that_hangs_costs_its_deadline_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.session.probe_runner.OWN_DEADLINE", 1.0)
    here = folder(tmp_path, hangs="import time\ndef run(a, e, d):\n    time.sleep(600)\n", good=GOOD)
    model = await session(here)
    results = model.nodes["here"].probe_results
    assert results["good"]["problem"] is None
    assert results["hangs"]["problem"] == "it did not end within 0.5 s"


async def test_they_travel_with_the_probes() -> None:
    cargo = Cargo(payload.ENTRY, None, (("fabtui_own.x", "y = 1"),))
    pieces = protocol.Decoder(pieces=True).feed(b"".join(await cargo.pieces("own", set())))
    modules = json.loads(zlib.decompress(b"".join(piece["piece"] for piece in pieces)))
    assert modules["fabtui_own.x"] == "y = 1"
    assert "fabtui_node.probes.user_probe" in modules

"""Probes of the user's own: found and never run here, shipped, run on the nodes, and skipped when broken."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fabtui.diagnosis.preflight import preflight
from fabtui.fabric.model import Model
from fabtui.nodes import bootstrap
from fabtui.nodes.cargo import Cargo
from fabtui.session import ownprobes
from fabtui.session.live import LiveFeed
from fabtui.session.looks import PREFLIGHT
from fabtui.session.options import SessionOptions
from fabtui_probes import boot, own, protocol

ROOT = Path(__file__).resolve().parents[3]
GOOD = "def run(args, emit, deadline):\n    return {'a': 1}\n"


def blocks(path: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


def folder(tmp_path: Path, **files: str) -> Path:
    here = tmp_path / "probes"
    here.mkdir(exist_ok=True)
    for name, text in files.items():
        (here / f"{name}.py").write_text(textwrap.dedent(text))
    return here


# -- finding them -----------------------------------------------------------------------------------------------------


def test_without_a_folder_there_are_none(tmp_path: Path) -> None:
    assert ownprobes.find(None) == ownprobes.OwnProbes()
    assert ownprobes.find(tmp_path / "not-there").problems == []


def test_they_are_found_and_not_run(tmp_path: Path) -> None:
    here = folder(
        tmp_path, one=f"NAME = 'uno'\nTITLE = 'first'\nraise SystemExit('run')\n{GOOD}", two=GOOD, _not="x = ("
    )
    (here / "notes.txt").write_text("no probe")
    found = ownprobes.find(here)
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
    found = ownprobes.find(folder(tmp_path, broken=text, good=GOOD))
    assert list(found.probes) == ["good"]
    (told,) = found.problems
    assert problem in told
    assert "broken.py is left out: " in told
    assert "\n" not in told


def test_what_is_no_utf8_or_open_to_anybody_is_left_out(tmp_path: Path) -> None:
    here = folder(tmp_path, a=GOOD, b=GOOD, c="NAME = 'd'\n" + GOOD, e="NAME = 'd'\n" + GOOD)
    (here / "a.py").write_bytes(b"\xff\xfe" + GOOD.encode())
    (here / "b.py").chmod(0o666)
    found = ownprobes.find(here)
    assert list(found.probes) == ["d"]
    assert "a.py" in found.problems[0]
    assert "anybody may write" in found.problems[1]
    assert "is called d already" in found.problems[2]


@pytest.mark.parametrize("told", ["oursite-1.dist-info", "oursite.egg-info"])
def test_installed_packages_bring_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str) -> None:
    package = tmp_path / "site" / "oursite"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / "scratch.py").write_text(GOOD)
    info = tmp_path / "site" / told
    info.mkdir()
    (info / ("METADATA" if told.endswith("dist-info") else "PKG-INFO")).write_text("Name: oursite\nVersion: 1\n")
    points = f"[{ownprobes.GROUP}]\nscratch = oursite.scratch\ngone = oursite.gone\n"
    (info / "entry_points.txt").write_text(points)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    found = ownprobes.find(tmp_path / "not-there")
    assert list(found.probes) == ["scratch"]
    assert "entry point gone: there is no such module" in found.problems[0]
    assert "oursite" not in sys.modules


def test_an_archive_on_the_path_is_asked_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = tmp_path / "site.zip"
    with zipfile.ZipFile(archive, "w") as made:
        made.writestr("oursite-1.dist-info/METADATA", "Name: oursite\nVersion: 1\n")
        made.writestr("oursite-1.dist-info/entry_points.txt", f"[{ownprobes.GROUP}]\ngone = oursite.gone\n")
    monkeypatch.syspath_prepend(str(archive))
    found = ownprobes.find(tmp_path / "not-there")
    assert "entry point gone: there is no such module" in found.problems[0]


def test_what_asks_installed_packages_is_loaded_only_where_one_has_probes(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from fabtui.session import ownprobes;"
        f"ownprobes.find(Path({str(tmp_path)!r})); print('importlib.metadata' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


# -- running them -----------------------------------------------------------------------------------------------------


@pytest.fixture
def ship() -> Iterator[Any]:
    """Serve modules from memory, as on a node."""
    made: list[str] = []

    def shipped(name: str, text: str) -> dict[str, Any]:
        sources = {f"{own.PACKAGE}.{name}": textwrap.dedent(text)}
        importer = boot.MemoryImporter(sources)
        sys.meta_path.insert(0, importer)
        made.append(name)
        try:
            return own.run({"name": name}, None, 5.0)
        finally:
            sys.meta_path.remove(importer)

    yield shipped
    for name in [own.PACKAGE, *(f"{own.PACKAGE}.{name}" for name in made)]:
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
        ("return {'a': {1, 2}}", "a set, which is no value"),
        ("return {'a': b'x'}", "a bytes, which is no value"),
        ("return {'a': float('nan')}", "nan, which is no number"),
        ("return {'a': 1 << 200}", "a number of more than 63 bits"),
        ("return {3: 1}", "a int as a name"),
        ("return {'a': 'x' * 100_000_000}", "more than 200000 characters"),
        ("return {'a': list(range(1_000_000))}", "more than 200000 characters"),
        ("a = []; a.append(a); return {'a': a}", "more than 12 deep"),
        ("return undefined", "NameError"),
    ],
)
def test_one_that_does_not_work_says_why(ship: Any, body: str, problem: str) -> None:
    found = ship("bad", f"def run(args, emit, deadline):\n    {body}\n")
    assert problem in found["problem"]
    assert found["value"] == {}


@pytest.mark.parametrize("judge", ["return 3", "return [3]", "raise KeyError('x')"])
def test_a_judge_that_does_not_work_leaves_the_values(ship: Any, judge: str) -> None:
    found = ship("judged", GOOD + f"def judge(value):\n    {judge}\n")
    assert found["value"] == {"a": 1}
    assert found["problem"]


# -- in a session -----------------------------------------------------------------------------------------------------


async def session(here: Path) -> Model:
    """Look at this host, without SSH, with all probes."""
    options = SessionOptions(hosts=("here",), transport="local", probes=PREFLIGHT, looks_only=True, probe_folder=here)
    feed = LiveFeed(options)
    try:
        await feed.run()
    finally:
        await feed.close()
    return feed.model


async def test_the_probe_of_the_docs_works(tmp_path: Path) -> None:
    (example,) = blocks(ROOT / "docs/probes.md")
    assert len(example.splitlines()) <= 32
    assert example in (ROOT / "CONTRIBUTING.md").read_text()
    model = await session(folder(tmp_path, scratch=example))
    look = model.nodes["here"].looks["scratch"]
    assert (look["problem"], look["title"]) == (None, "the scratch file system")
    assert look["value"].keys() == {"type", "size", "used"}
    found = preflight(model)
    titles = {fact.title: found.table.values[fact.name]["here"] for fact in found.table.facts}
    assert titles["scratch: size"] == look["value"]["size"] > 0
    assert [fact.unit for fact in found.table.facts if fact.name == "scratch.size"] == ["B"]


async def test_broken_ones_are_told_and_take_nothing_along(tmp_path: Path) -> None:
    here = folder(
        tmp_path,
        syntax="def run(:",
        dies="import os\ndef run(a, e, d):\n    os._exit(7)\n",
        raises="def run(a, e, d):\n    raise ValueError('no \\x1b[31m way')\n",
        good=GOOD,
    )
    model = await session(here)
    looks = model.nodes["here"].looks
    assert looks["good"]["value"] == {"a": 1}
    assert looks["dies"]["problem"] == "it ended its own process, with status 7"
    assert looks["raises"]["problem"].startswith("ValueError: no")
    assert looks["host"]["limits"]
    told = [line.text for line in model.log if line.level == "warning" and "probe" in line.text]
    assert len(told) == 3
    assert all("\x1b" not in line and "\n" not in line for line in told)
    found = preflight(model)
    assert found.missing == []
    assert {one.subject: one.verdict for one in found.findings if one.subject in ("dies", "raises", "good")} == {
        "dies": "note",
        "raises": "note",
    }


async def test_one_that_hangs_costs_its_deadline_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fabtui.session.looks.OWN_DEADLINE", 1.0)
    here = folder(tmp_path, hangs="import time\ndef run(a, e, d):\n    time.sleep(600)\n", good=GOOD)
    model = await session(here)
    looks = model.nodes["here"].looks
    assert looks["good"]["problem"] is None
    assert looks["hangs"]["problem"] == "it did not end within 0.5 s"


async def test_they_travel_with_the_probes() -> None:
    cargo = Cargo(bootstrap.ENTRY, None, (("fabtui_own.x", "y = 1"),))
    pieces = protocol.Decoder(pieces=True).feed(b"".join(await cargo.pieces("looks")))
    modules = json.loads(zlib.decompress(b"".join(piece["piece"] for piece in pieces)))
    assert modules["fabtui_own.x"] == "y = 1"
    assert "fabtui_probes.own" in modules

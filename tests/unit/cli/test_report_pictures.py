"""``fabtui report --svg`` and ``--png``: which files are written, and what is refused."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from fabtui.cli.main import main

RECORDING = str(Path(__file__).resolve().parents[3] / "tests/samples/sessions/h200x8-lab-2x4-faults.jsonl.gz")
PNG = b"\x89PNG"


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def report(*args: str) -> int:
    return main(["report", RECORDING, *args])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_folder_gets_every_picture_and_no_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("--svg", "out", "--png", "out") == 1
    layers = ("busbw", "latency", "p2p", "ping", "world")
    stems = [*(f"{layer}-{mode}" for layer in layers for mode in ("value", "verdict")), "curves", "health-verdict"]
    assert names(tmp_path / "out") == sorted(
        f"{stem}.{kind}" for stem in [*stems, "transport-verdict"] for kind in ("svg", "png")
    )
    for path in (tmp_path / "out").iterdir():
        data = path.read_bytes()
        assert data.startswith(PNG) if path.suffix == ".png" else ElementTree.fromstring(data).get("role") == "img"
    assert names(tmp_path) == ["out"]
    assert capsys.readouterr().out.count("wrote ") == 26


def test_a_file_gets_one_picture(tmp_path: Path) -> None:
    assert report("--svg", "p2p.svg", "-o", "page.html") == 1
    assert names(tmp_path) == ["p2p.svg", "page.html"]
    assert "p2p: one way" in (tmp_path / "p2p.svg").read_text()
    assert report("--png", "busbw.png", "--layer", "curves") == 1
    assert (tmp_path / "busbw.png").read_bytes().startswith(PNG)


def test_the_picture_of_the_documentation_is_current(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[3]
    recording = root / "recordings" / "h200x4-lab-2x2-faults.jsonl.gz"
    assert main(["report", str(recording), "--svg", "matrix.svg", "--mode", "value"]) == 1
    shown = root / "docs" / "images" / "matrix.svg"
    assert (tmp_path / "matrix.svg").read_bytes() == shown.read_bytes(), "make images draws it again"


def test_layers_and_modes_are_chosen(tmp_path: Path) -> None:
    assert report("--svg", "out/", "--layer", "world,ping,curves", "--mode", "value") == 1
    assert names(tmp_path / "out") == ["curves.svg", "ping-value.svg", "world-value.svg"]


@pytest.mark.slow
def test_the_same_files_give_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        report("--svg", folder, "--png", folder)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_the_page_on_standard_output_stays_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report("--png", "p2p.png", "-o", "-") == 1
    assert (tmp_path / "p2p.png").exists()
    assert "wrote" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--svg", "p2p.png"), "'p2p.png' should end in .svg, or name a folder"),
        (("--png", "-"), "'-' names neither"),
        (("--svg", "a.svg", "--layer", "p2p,world"), "holds one picture"),
        (("--svg", "a.svg", "--layer", "p2q"), "unknown picture 'p2q'"),
        (("--svg", "a.svg", "--layer", "tcp"), "there are no results in tcp"),
        (("--svg", "a.svg", "--layer", "health", "--mode", "value"), "no values in health"),
        (("--layer", "p2p"), "add --svg or --png"),
        (("--svg", "missing/a.svg"), "cannot write"),
        (("--svg", "/dev/null/x"), "cannot make the folder"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], args: tuple[str, ...], words: str
) -> None:
    assert report(*args) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert names(tmp_path) == []


def test_results_without_values_have_no_scale(tmp_path: Path) -> None:
    rows = [
        "==> p2p-test-0-1-7.out <==",
        "n060 [0/2]",
        "n060 [0] : OK 0 -> 1",
        "==> p2p-test-1-0-8.out <==",
        "NCCL error",
    ]
    (tmp_path / "runs.txt").write_text("\n".join(rows) + "\n")
    assert main(["report", "runs.txt", "--svg", "out"]) == 1
    assert names(tmp_path / "out") == ["health-verdict.svg", "p2p-verdict.svg"]


def test_files_without_pairs_have_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "note.txt").write_text("nothing that is known\n")
    assert main(["report", "note.txt", "--png", "x.png"]) == 2
    assert "note.txt: nothing to report on: no format recognised" in capsys.readouterr().err

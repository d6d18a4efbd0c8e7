"""The bench of known errors: texts are found in sources, filled in and wrapped as their libraries print them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[3] / "bench" / "known_errors.py"
SOURCE = """
// WARN("a comment")
#define CHECKED(cmd) do { if (cmd) WARN("Cuda failure '%s'", cudaGetErrorString(err)); } while (0)
void one() { WARN("XML Parse : expected \\"%c\\" of %d\\n"
                  " in %s", c, count, name); }
"""
USE = 'void two() { CHECKED(f()); INFO(NCCL_ALL, "nothing"); WARN("odd %lx of %" PRIu64, a, b); }\n'


@pytest.fixture
def bench() -> ModuleType:
    spec = importlib.util.spec_from_file_location("known_errors", BENCH)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["known_errors"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "src" / "graph").mkdir(parents=True)
    (tmp_path / "src" / "graph" / "xml.h").write_text(SOURCE)
    (tmp_path / "src" / "enqueue.cc").write_text(USE)
    return tmp_path


def test_texts_of_a_source_are_printed_as_the_library_prints_them(bench: ModuleType, tree: Path) -> None:
    found = {one.printed.partition(" NCCL WARN ")[::2] for one in bench.texts(bench.LIBRARIES["nccl"], tree)}
    assert {text for _, text in found} == {
        "Cuda failure 'invalid argument'",
        'XML Parse : expected "c" of 3\n in mlx5_0',
        "odd 7f01 of 3",
    }
    assert any(head.startswith("n060:4101:4190 [0] enqueue.cc:") and "Cuda" in text for head, text in found)


def test_a_bare_git_directory_is_read(bench: ModuleType, tree: Path, tmp_path: Path) -> None:
    git = ["git", "-C", str(tree), "-c", "user.name=n", "-c", "user.email=e"]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        subprocess.run([*git, *words], check=True)
    assert len(list(bench.texts(bench.LIBRARIES["nccl"], tree / ".git"))) == 3


def test_a_known_text_has_a_cause(bench: ModuleType, tree: Path) -> None:
    groups = {one.file: bench.answer(one, "nccl")[0] for one in bench.texts(bench.LIBRARIES["nccl"], tree)}
    assert groups["src/graph/xml.h"] == "cause"


def test_without_sources_it_prints_where_they_are(
    bench: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["known_errors.py"])
    assert bench.main() == 2
    assert "--source nccl=PATH   github.com/NVIDIA/nccl" in capsys.readouterr().err
